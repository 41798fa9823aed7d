"""The address at which others reach this Mac, and what follows from its being one of the tailnet."""

from __future__ import annotations

import dataclasses
import ipaddress
from datetime import timedelta

from bramley.agent import programs as running
from bramley.agent.host import Host
from bramley.agent.programs import Programs
from bramley.agent.settings import TAILSCALE, Endpoint, Settings
from bramley.api.names import flags, host
from bramley.base import errors, log

logger = log.get(__name__)

LIMIT = timedelta(seconds=10)


async def settled(settings: Settings, programs: Programs, host: Host) -> Settings:
    """Return the settings with the address found, and with default endpoints on the tailnet only where that is meant."""
    if settings.address_source == TAILSCALE:
        address = settings.node.address or await _of_tailnet(programs)
        return _with_address(_on_tailnet(settings, address), address)
    return _with_address(settings, settings.node.address or _of_interface(host))


def _with_address(settings: Settings, address: str) -> Settings:
    return dataclasses.replace(settings, node=dataclasses.replace(settings.node, address=address))


def _of_interface(host: Host) -> str:
    try:
        found = host.address()
    except OSError as error:
        logger.warning("No address found", error=str(error))
        return ""
    if not found:
        logger.warning("No address found", reason="no interface that others could reach is up")
    return found or ""


async def _of_tailnet(programs: Programs) -> str:
    """Ask the tailnet's program; without an answer nothing may start, for it would listen where everybody can reach it."""
    said = await running.within(LIMIT, programs, (host.TAILSCALE_BINARY, "ip", "-4"))
    for word in said.stdout.split():
        try:
            return str(ipaddress.IPv4Address(word))
        except ValueError:
            continue
    raise errors.BadConfiguration(
        f"{flags.NODE_IP_SOURCE.name} {TAILSCALE}: the tailnet gives this Mac no address ({said.stderr.strip()}); "
        f"log it in, or choose another source"
    )


def _on_tailnet(settings: Settings, address: str) -> Settings:
    def moved(endpoint: Endpoint | None) -> Endpoint | None:
        is_open = endpoint is not None and endpoint.is_default and not endpoint.host
        return dataclasses.replace(endpoint, host=address) if endpoint and is_open else endpoint

    serving = settings.serving
    if serving is not None:
        endpoint = moved(serving.endpoint) or serving.endpoint
        serving = dataclasses.replace(serving, endpoint=endpoint)
    return dataclasses.replace(
        settings, metrics=moved(settings.metrics), health=moved(settings.health), serving=serving
    )
