from __future__ import annotations

import pytest

from bramley.agent.node import address
from bramley.agent.programs import ProgramResult
from bramley.agent.settings import Endpoint, NodeSettings, Serving, Settings
from bramley.base import errors
from tests.unit.agent.node.worlds import Host, Programs

TAILSCALE = "/usr/local/bin/tailscale ip -4"
OPEN = Endpoint("", 8080, is_default=True)


def chosen(source: str, address: str = "", **more: Endpoint) -> Settings:
    return Settings(
        node=NodeSettings("mac-1", address=address),
        address_source=source,
        serving=Serving(Endpoint("", 10250, is_default=True)),
        **{"metrics": OPEN, "health": OPEN, **more},  # type: ignore[arg-type]
    )


async def test_address_is_that_of_the_first_interface_and_servers_listen_everywhere() -> None:
    with_address = await address.with_address(chosen("auto"), Programs(), Host())

    assert with_address.node.address == "10.0.0.7"
    assert (with_address.metrics, with_address.health) == (OPEN, OPEN)


async def test_configured_address_wins() -> None:
    with_address = await address.with_address(chosen("auto", "192.0.2.1"), Programs(), Host())

    assert with_address.node.address == "192.0.2.1"


async def test_without_an_interface_the_agent_runs_without_an_address() -> None:
    with_address = await address.with_address(chosen("auto"), Programs(), Host(ip=None))

    assert with_address.node.address == ""


async def test_on_the_tailnet_metrics_health_and_logs_listen_there_only() -> None:
    programs = Programs({TAILSCALE: ProgramResult(0, "100.64.0.11\n")})

    with_address = await address.with_address(chosen("tailscale"), programs, Host())

    assert with_address.node.address == "100.64.0.11"
    assert with_address.metrics
    assert with_address.health
    assert with_address.serving
    hosts = {
        with_address.metrics.host,
        with_address.health.host,
        with_address.serving.endpoint.host,
    }
    assert hosts == {"100.64.0.11"}


async def test_configured_bind_address_is_kept() -> None:
    programs = Programs({TAILSCALE: ProgramResult(0, "100.64.0.11\n")})
    own = Endpoint("127.0.0.1", 9000)

    with_address = await address.with_address(chosen("tailscale", metrics=own), programs, Host())

    assert with_address.metrics == own


@pytest.mark.parametrize(
    "answer", [ProgramResult(1, "", "tailscaled is not running"), ProgramResult(0, "fd7a::1\n")]
)
async def test_without_a_tailnet_the_start_fails(answer: ProgramResult) -> None:
    programs = Programs({TAILSCALE: answer})

    with pytest.raises(errors.BadConfiguration, match="--node-ip-source tailscale"):
        await address.with_address(chosen("tailscale"), programs, Host())


async def test_hanging_tailnet_fails_the_start() -> None:
    programs = Programs(hanging={"tailscale"})

    with pytest.raises(errors.TimedOut):
        await address.with_address(chosen("tailscale"), programs, Host())
