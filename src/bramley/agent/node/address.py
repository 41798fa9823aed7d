"""The Node's address, and the addresses of the agent's endpoints that depend on it."""

from __future__ import annotations

import dataclasses
import ipaddress
from datetime import timedelta

from bramley.agent.host import Host
from bramley.agent.programs import Programs, run_with_timeout
from bramley.agent.settings import TAILSCALE, Endpoint, Settings
from bramley.api.names import flags, host
from bramley.base import errors, log

logger = log.get(__name__)

TIMEOUT = timedelta(seconds=10)


async def with_address(settings: Settings, programs: Programs, host: Host) -> Settings:
    """Return the settings with the Node's address; with a tailnet address, default endpoints listen on the tailnet only."""
    if settings.address_source == TAILSCALE:
        address = settings.node.address or await _tailnet_address(programs)
        return _replace_address(_on_tailnet(settings, address), address)
    return _replace_address(settings, settings.node.address or _interface_address(host))


def _replace_address(settings: Settings, address: str) -> Settings:
    return dataclasses.replace(settings, node=dataclasses.replace(settings.node, address=address))


def _interface_address(host: Host) -> str:
    try:
        address = host.address()
    except OSError as error:
        logger.warning("Node has no address", error=str(error))
        return ""
    if not address:
        logger.warning("Node has no address", reason="no reachable interface is up")
    return address or ""


async def _tailnet_address(programs: Programs) -> str:
    """Return the tailnet's address. Without one the agent must not start, because it would listen on all interfaces."""
    result = await run_with_timeout(TIMEOUT, programs, (host.TAILSCALE_BINARY, "ip", "-4"))
    for word in result.stdout.split():
        try:
            return str(ipaddress.IPv4Address(word))
        except ValueError:
            continue
    raise errors.BadConfiguration(
        f"{flags.NODE_IP_SOURCE.name} {TAILSCALE}: this Mac has no tailnet address ({result.stderr.strip()}); "
        f"log in to the tailnet, or choose another source"
    )


def _on_tailnet(settings: Settings, address: str) -> Settings:
    def move_to_tailnet(endpoint: Endpoint | None) -> Endpoint | None:
        is_open = endpoint is not None and endpoint.is_default and not endpoint.host
        return dataclasses.replace(endpoint, host=address) if endpoint and is_open else endpoint

    serving = settings.serving
    if serving is not None:
        endpoint = move_to_tailnet(serving.endpoint) or serving.endpoint
        serving = dataclasses.replace(serving, endpoint=endpoint)
    return dataclasses.replace(
        settings,
        metrics=move_to_tailnet(settings.metrics),
        health=move_to_tailnet(settings.health),
        serving=serving,
    )
