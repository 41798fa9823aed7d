from __future__ import annotations

import pytest

from bramley.agent.node import address
from bramley.agent.programs import Finished
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


async def test_the_first_interface_gives_the_address_and_everything_stays_open() -> None:
    settled = await address.settled(chosen("auto"), Programs(), Host())

    assert settled.node.address == "10.0.0.7"
    assert (settled.metrics, settled.health) == (OPEN, OPEN)


async def test_an_address_that_was_given_wins() -> None:
    settled = await address.settled(chosen("auto", "192.0.2.1"), Programs(), Host())

    assert settled.node.address == "192.0.2.1"


async def test_without_an_interface_the_agent_runs_without_an_address() -> None:
    settled = await address.settled(chosen("auto"), Programs(), Host(ip=None))

    assert settled.node.address == ""


async def test_on_the_tailnet_metrics_health_and_logs_listen_there_only() -> None:
    programs = Programs({TAILSCALE: Finished(0, "100.64.0.11\n")})

    settled = await address.settled(chosen("tailscale"), programs, Host())

    assert settled.node.address == "100.64.0.11"
    assert settled.metrics
    assert settled.health
    assert settled.serving
    hosts = {settled.metrics.host, settled.health.host, settled.serving.endpoint.host}
    assert hosts == {"100.64.0.11"}


async def test_an_address_to_listen_on_that_somebody_chose_stays() -> None:
    programs = Programs({TAILSCALE: Finished(0, "100.64.0.11\n")})
    own = Endpoint("127.0.0.1", 9000)

    settled = await address.settled(chosen("tailscale", metrics=own), programs, Host())

    assert settled.metrics == own


@pytest.mark.parametrize(
    "answer", [Finished(1, "", "tailscaled is not running"), Finished(0, "fd7a::1\n")]
)
async def test_without_a_tailnet_nothing_starts(answer: Finished) -> None:
    programs = Programs({TAILSCALE: answer})

    with pytest.raises(errors.BadConfiguration, match="--node-ip-source tailscale"):
        await address.settled(chosen("tailscale"), programs, Host())


async def test_a_tailnet_that_hangs_ends_the_start() -> None:
    programs = Programs(hanging={"tailscale"})

    with pytest.raises(errors.TimedOut):
        await address.settled(chosen("tailscale"), programs, Host())
