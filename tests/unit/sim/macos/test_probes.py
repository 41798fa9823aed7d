"""Probes, waits and reboots over an in-process connection, and their timeouts."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host import kcpassword
from bramley.host.commands import Probe, ReadFile, Reboot, Run, RunProbe, Stat, Wait, Write
from bramley.host.facts import FILE, FOLDER, LINK, FileStat, RunResult
from bramley.sim.macos import faults
from tests.unit.sim.macos.harness import LOGINWINDOW, PASSWORD, connected

WRITE = Write(path="/opt/file", content=b"new", purpose="write a file")
KICKSTART = Run(
    argv=("launchctl", "kickstart", "-k", LOGINWINDOW), purpose="restart loginwindow", as_root=True
)
SESSION = RunProbe(("launchctl", "print", "gui/501"), as_root=True)


async def test_all_probes_are_one_round_trip(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    connection.mac.files.link("/opt/link", "/etc")
    probes: list[Probe] = [
        RunProbe(("id", "-u", "m1")),
        RunProbe(("nothing-like-it",)),
        ReadFile("/etc/sudoers", as_root=True, max_bytes=9),
        ReadFile("/etc/nothing"),
        Stat("/etc/pf.conf", digest=True),
        Stat("/etc/nothing"),
        Stat("/opt/link"),
        Stat("/Users/m1"),
    ]

    seen = (await connection.probe(probes)).results

    content = connection.mac.files.read("/etc/pf.conf") or b""
    assert connection.probes == 1
    assert list(seen.values()) == [
        RunResult(0, b"501\n"),
        RunResult(127, b"sh: nothing-like-it: command not found\n"),
        b"Defaults ",
        None,
        FileStat(
            FILE,
            mode=0o644,
            owner="root:wheel",
            size=len(content),
            digest=hashlib.sha256(content).hexdigest(),
        ),
        None,
        FileStat(LINK, owner="root:wheel", target="/etc"),
        FileStat(FOLDER, mode=0o750, owner="m1:staff"),
    ]


async def test_files_of_root_are_not_read_without_sudo(tmp_path: Path) -> None:
    connection = connected(tmp_path, sudo=False)
    at = ReadFile("/etc/sudoers", as_root=True)
    as_root = RunProbe(("true",), as_root=True)
    find = Stat("/etc/sudoers", digest=True)

    seen = await connection.probe([at, as_root, find])

    assert seen.file(at) is None
    assert seen.result(as_root) == RunResult(1, b"sudo: a password is required\n")
    found = seen.stat(find)
    assert found is not None
    assert (found.mode, found.digest) == (0o440, "")


async def test_only_the_requested_bytes_of_a_file_are_returned(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    connection.mac.files.write("/etc/kcpassword", b"secret", mode=0o600)
    marker = ReadFile("/etc/kcpassword", as_root=True, prefix=b"marker", max_bytes=6)
    secret = ReadFile("/etc/kcpassword", as_root=True, prefix=b"sec", max_bytes=6)

    seen = await connection.probe([marker, secret])

    assert seen.file(marker) == b""
    assert seen.file(secret) == b"secret"


async def test_wait_ends_when_the_probe_succeeds(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    files = connection.mac.files
    files.write("/etc/kcpassword", kcpassword.encode(Secret(PASSWORD)), mode=0o600)
    await connection.execute(
        Run(
            argv=(
                "defaults",
                "write",
                "/Library/Preferences/com.apple.loginwindow",
                "autoLoginUser",
                "-string",
                "m1",
            ),
            purpose="p",
            as_root=True,
        )
    )

    await connection.execute(KICKSTART)
    await connection.execute(
        Wait(probe=SESSION, text="session = Aqua", purpose="wait for the session")
    )

    assert "session = Aqua" in (await connection.probe([SESSION])).result(SESSION).text


async def test_wait_times_out(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    before = connection.mac.now()

    with pytest.raises(errors.TimedOut, match="condition not met within 30 s"):
        await connection.execute(Wait(probe=SESSION, purpose="wait"))

    assert 29 <= connection.mac.now() - before <= 30
    await connection.execute(Wait(probe=SESSION, purpose="wait", ignore_failure=True))


async def test_reboot_ends_when_the_mac_is_up(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    boot = connection.mac.state["boot"]["boot_id"]

    await connection.execute(Reboot(purpose="restart"))

    assert connection.mac.state["boot"]["boot_id"] != boot


async def test_mac_that_does_not_come_back_times_out(tmp_path: Path) -> None:
    connection = connected(tmp_path, boot_seconds=3600)

    with pytest.raises(errors.TimedOut, match="did not come back within 600 s"):
        await connection.execute(Reboot(purpose="restart"))
    with pytest.raises(errors.HostUnreachable, match="does not respond"):
        await connection.execute(WRITE)


async def test_every_command_has_a_timeout(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    connection.faults.at(0, faults.Hang())
    before = connection.mac.now()

    with pytest.raises(errors.TimedOut):
        await connection.execute(Run(argv=("true",), purpose="p", timeout=timedelta(seconds=7)))

    assert connection.mac.now() - before == 7
