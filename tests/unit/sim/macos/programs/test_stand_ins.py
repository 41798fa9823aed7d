"""Stand-ins for third-party programs: reproducible archives that the model recognizes once unpacked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bramley.sim.macos import local_network, stand_ins
from bramley.sim.macos.call import Call, Result
from bramley.sim.macos.mac import Mac
from tests.unit.sim.macos.programs.fixed_clock import FixedClock

BUNDLE = "/usr/local/lib/tart.app"
GUEST = "192.168.64.7"


def unpack(mac: Mac, archive: bytes, folder: str) -> None:
    mac.files.make_folder(folder)
    mac.files.write("/tmp/archive", archive)
    result = run(mac, "tar", "-x", "-z", "-f", "/tmp/archive", "-C", folder)
    assert result == Result()


def run(mac: Mac, *words: str) -> Result:
    return mac.run(Call(words, "root"))


@pytest.fixture
def mac(tmp_path: Path) -> Mac:
    return Mac.create(tmp_path / "mac", clock=FixedClock())


def test_same_version_gives_the_same_archive() -> None:
    assert stand_ins.tart("2.32.1") == stand_ins.tart("2.32.1")
    assert stand_ins.tart("2.32.1") != stand_ins.tart("2.33.0")


def test_unpacked_bundle_reports_its_version(mac: Mac) -> None:
    unpack(mac, stand_ins.tart("2.32.1"), "/usr/local/lib")

    assert run(mac, f"{BUNDLE}/Contents/MacOS/tart", "--version") == Result(out="2.32.1\n")


def test_replaced_bundle_loses_the_local_network_grant(mac: Mac) -> None:
    unpack(mac, stand_ins.tart("2.32.1"), "/usr/local/lib")
    local_network.grant(mac, BUNDLE)
    assert local_network.reaches(mac, BUNDLE, GUEST)

    mac.files.remove(BUNDLE)
    unpack(mac, stand_ins.tart("2.33.0"), "/usr/local/lib")

    assert not local_network.reaches(mac, BUNDLE, GUEST)


def test_allowed_networks_apply_from_the_next_start(mac: Mac) -> None:
    for key in local_network.ALLOWED:
        domain = "com.apple.network.local-network"
        run(mac, "defaults", "write", domain, key, "-array", "192.168.0.0/16")
    assert not local_network.reaches(mac, BUNDLE, GUEST)

    with mac.change() as state:
        state["settings"]["boot_seconds"] = 0.0
    mac.reboot()

    assert local_network.reaches(mac, BUNDLE, GUEST)


@pytest.mark.parametrize("name", ["tailscale", "tart"])
def test_stand_in_prints_its_version_from_any_folder(tmp_path: Path, name: str) -> None:
    script = tmp_path / name
    script.write_bytes(stand_ins.program(name, "1.2.3"))

    for word in ("version", "--version"):
        printed = subprocess.run(
            ["/bin/sh", script, word], capture_output=True, check=True, timeout=60
        )
        assert printed.stdout == b"1.2.3\n"


def test_stand_in_of_a_daemon_prints_its_version(tmp_path: Path, mac: Mac) -> None:
    script = tmp_path / "node_exporter"
    script.write_bytes(stand_ins.node_exporter("1.8.2"))
    printed = subprocess.run(
        ["/bin/sh", script, "--version"], capture_output=True, check=True, timeout=60
    )
    mac.files.make_folder("/usr/local/bin")
    mac.files.write("/usr/local/bin/node_exporter", script.read_bytes(), mode=0o755)

    assert printed.stdout == b"node_exporter, version 1.8.2\n"
    assert run(mac, "node_exporter", "--version").out.startswith("node_exporter, version 1.8.2")


def test_unpacked_tailscale_needs_its_daemon(mac: Mac) -> None:
    unpack(mac, stand_ins.tailscale("1.96.5"), "/usr/local/bin")

    assert run(mac, "tailscale", "version") == Result(out="1.96.5\n")
    assert run(mac, "tailscaled", "--version") == Result(out="1.96.5\n")
    assert "doesn't appear to be running" in run(mac, "tailscale", "ip", "-4").err


def test_tokens_and_times_of_pf_are_not_in_a_snapshot(tmp_path: Path) -> None:
    once, twice = (Mac.create(tmp_path / name, clock=FixedClock()) for name in ("once", "twice"))
    run(once, "pfctl", "-E")
    run(twice, "pfctl", "-E")
    run(twice, "pfctl", "-E")

    assert once.snapshot()["state"]["pf"] == twice.snapshot()["state"]["pf"]
    assert once.snapshot()["state"]["pf"]["enabled"] is True
