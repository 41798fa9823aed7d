"""The lease file of macOS' DHCP server: which leases count, whatever the file contains."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bramley.agent.dhcp_leases import DhcpLeases, LeaseUsage
from tests.unit.agent.clocks import SetClock

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
LATER = int(NOW.timestamp()) + 60
NETWORK = "192.168.64.0/24"


class FixedClock:
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


def a_lease(
    address: str = "192.168.64.2", until: str = hex(LATER), *, mac: str = "e:0:1:a:b:c"
) -> str:
    return (
        f"{{\n\tname=runner\n\tip_address={address}\n\thw_address=1,{mac}\n"
        f"\tidentifier=1,{mac}\n\tlease={until}\n}}\n"
    )


def usage_of(folder: Path, content: str | bytes) -> LeaseUsage:
    file = folder / "dhcpd_leases"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return DhcpLeases(file, SetClock(FixedClock())).usage()


@pytest.mark.parametrize(
    ("content", "used"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param(a_lease(), 1, id="one"),
        pytest.param(a_lease() + a_lease("192.168.64.3"), 2, id="two"),
        pytest.param(a_lease() + a_lease(mac="1:2:3:4:5:6"), 1, id="one address twice"),
        pytest.param(a_lease(until=hex(LATER - 60)), 0, id="expires now"),
        pytest.param(a_lease(until="0x1"), 0, id="expired"),
        pytest.param(a_lease(until=hex(LATER).upper().replace("X", "x")), 1, id="upper case"),
        pytest.param(a_lease(until="0xffffffff"), 1, id="for ever"),
        pytest.param(a_lease(until=str(LATER)), 0, id="not hexadecimal"),
        pytest.param(a_lease(until="0x" + "f" * 4000), 0, id="too large a number"),
        pytest.param(a_lease(until="-0x1"), 0, id="negative"),
        pytest.param(a_lease("192.168.64.999"), 0, id="no address"),
        pytest.param(a_lease("fd00::1"), 0, id="of another family"),
        pytest.param(a_lease(mac="ff,f1:f5:dd:7f:0:2:0:0"), 1, id="of a Linux guest"),
        pytest.param(a_lease() + "{\n\tip_address=192.168.64.3\n", 1, id="being written"),
        pytest.param("garbage\n}}{{" + a_lease(), 1, id="garbage before it"),
        pytest.param(a_lease().replace("\n", "\r\n"), 1, id="other line ends"),
        pytest.param("{\n\tname=x\n}\n", 0, id="no fields"),
        pytest.param(b"\xff\x00{" + a_lease().encode(), 1, id="not text"),
    ],
)
def test_only_leases_that_have_not_expired_count(
    tmp_path: Path, content: str | bytes, used: int
) -> None:
    found = usage_of(tmp_path, content)

    assert (found.used, found.size) == (used, 253)


def test_fullest_network_counts(tmp_path: Path) -> None:
    leases = [a_lease("192.168.65.2"), *(a_lease(f"192.168.64.{each}") for each in range(2, 255))]

    found = usage_of(tmp_path, "".join(leases))

    assert found == LeaseUsage(253, network=NETWORK)
    assert found.is_full


def test_mac_without_a_lease_file_has_no_leases(tmp_path: Path) -> None:
    assert DhcpLeases(tmp_path / "missing", FixedClock()).usage() == LeaseUsage()


def test_endless_file_is_read_in_part(tmp_path: Path) -> None:
    found = usage_of(tmp_path, a_lease() + "x" * 4_000_000 + a_lease("192.168.64.3"))

    assert found.used == 1


@pytest.mark.parametrize("kind", ["folder", "pipe", "private"])
def test_file_that_cannot_be_read_is_an_error(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "dhcpd_leases"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(file)

    with pytest.raises(OSError, match="dhcpd_leases"):
        DhcpLeases(file, FixedClock()).usage()
