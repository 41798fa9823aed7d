"""What the simulated tart finds of its Mac: the session, and the lease time in preferences that only root can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.sim.macos.call import Call
from bramley.sim.macos.mac import Mac
from bramley.sim.ssh import tart_bundle

SESSION, SECONDS = "/Users/m1/.tart/.sim/no-session", "/Users/m1/.tart/.sim/lease-seconds"


@pytest.fixture
def mac(tmp_path: Path) -> Mac:
    created = Mac.create(tmp_path / "mac")
    created.files.make_folder("/Users/m1/.tart", owner="m1:staff")
    return created


def write_lease_time(mac: Mac, *value: str) -> None:
    argv = ("defaults", "write", host.SHARING_PREFERENCES, "bootpd", "-dict-add")
    assert mac.run(Call((*argv, "DHCPLeaseTimeSecs", *value), "root")).code == 0


def test_lease_time_follows_the_preferences(mac: Mac) -> None:
    tart_bundle.mark_host(mac)
    assert not mac.files.exists(SECONDS)

    for seconds in ("600", "1200"):
        write_lease_time(mac, "-int", seconds)
        tart_bundle.mark_host(mac)
        assert mac.files.text(SECONDS) == seconds
    assert mac.files.owner(SECONDS) == "m1:staff"

    mac.files.remove(host.SHARING_PREFERENCES)
    tart_bundle.mark_host(mac)
    assert not mac.files.exists(SECONDS)


@pytest.mark.parametrize("value", [("-string", "600"), ("-int", "0"), ("-bool", "true")])
def test_lease_time_that_is_no_positive_number_is_ignored(mac: Mac, value: tuple[str, str]) -> None:
    write_lease_time(mac, *value)

    tart_bundle.mark_host(mac)

    assert not mac.files.exists(SECONDS)


def test_session_is_marked(mac: Mac) -> None:
    tart_bundle.mark_host(mac)
    assert mac.files.exists(SESSION)

    with mac.change() as state:
        state["console"]["user"] = "m1"
    tart_bundle.mark_host(mac)

    assert not mac.files.exists(SESSION)


def test_mac_without_tart_is_not_changed(tmp_path: Path) -> None:
    mac = Mac.create(tmp_path / "mac")
    write_lease_time(mac, "-int", "600")

    tart_bundle.mark_host(mac)

    assert not mac.files.exists("/Users/m1/.tart")
