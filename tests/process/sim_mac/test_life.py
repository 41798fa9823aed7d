"""Jobs, restarts and the end of a simulated Mac behind SSH."""

from __future__ import annotations

import asyncio
import os
import plistlib
import secrets
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncssh
import pytest

from bramley.agent import platform
from bramley.app import sim_mac
from bramley.app.listen_address import Address
from bramley.base.errors import BadConfiguration
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from bramley.sim.ssh.server import SimulatedHost
from tests.process.sim_mac.ssh_client import (
    PROCESSES,
    SETTINGS,
    TIMEOUT_SECONDS,
    Client,
    served,
    until,
    wait_for_process,
)

# Writes its pid, and exits slowly: the next start must wait for it.
SCRIPT = "trap 'sleep 0.3; echo gone; exit 0' TERM; id -un; while :; do sleep 0.05; done"
PLIST = "/Library/LaunchDaemons/a.job.plist"
JOB = plistlib.dumps(
    {
        "Label": "a.job",
        "UserName": "m1",
        "ProgramArguments": ["/bin/sh", "-c", SCRIPT],
        "KeepAlive": True,
        "ThrottleInterval": 1,
        "StandardOutPath": "/var/log/a.log",
    }
)
PID = "sudo launchctl print system/a.job | sed -n 's/.*pid = //p'"


async def loaded(mac: Client) -> None:
    await mac.output_of(f"sudo tee {PLIST}", JOB)
    await mac.output_of(f"sudo launchctl bootstrap system {PLIST}")


async def test_job_runs_as_its_user_with_keep_alive_until_bootout(tmp_path: Path) -> None:
    log = tmp_path / "mac/var/log/a.log"
    async with served(tmp_path / "mac", may_sudo=True) as (_, mac):
        await loaded(mac)
        await until(lambda: log.read_text() == "m1\n")

        first = await mac.output_of(PID)
        await mac.output_of("sudo launchctl kickstart -k system/a.job")
        # The second begins when the first has gone.
        await until(lambda: log.read_text() == "m1\ngone\nm1\n")
        assert first != await mac.output_of(PID)

        await mac.output_of(f"sudo kill -9 $({PID})")
        await until(lambda: log.read_text() == "m1\ngone\nm1\nm1\n")

        last = await mac.output_of(PID)
        await mac.output_of("sudo launchctl bootout system/a.job")
        await until(lambda: log.read_text().endswith("gone\n"))
        await mac.error_of(f"while kill -0 {last.strip()}; do sleep 0.05; done; exit 1")


async def test_restart_cuts_connections_kills_processes_and_starts_jobs(tmp_path: Path) -> None:
    async with served(tmp_path / "mac", may_sudo=True) as (_, mac):
        seconds = long()
        await loaded(mac)
        await mac.output_of(
            f"nohup sleep {seconds} </dev/null >/dev/null 2>&1 & sudo touch /tmp/kept"
        )
        await wait_for_process(mac, seconds)
        before = await boot(mac)

        await mac.run("sudo shutdown -r now; sleep 1000")

        await another_boot(mac, before)
        assert seconds not in await mac.output_of(PROCESSES)
        # Jobs are started with the Mac, and are what they will be a moment later.
        await wait_for_process(mac, "trap")


async def boot(mac: Client) -> str:
    return await mac.output_of("sysctl -n kern.bootsessionuuid")


async def another_boot(mac: Client, before: str) -> None:
    """Wait until a Mac that restarts answers again."""
    after = before
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while after == before:
            with suppress(OSError, asyncssh.Error, AssertionError):
                after = await boot(mac)
            await asyncio.sleep(0.05)


async def test_stopped_mac_keeps_its_disk_and_host_key(tmp_path: Path) -> None:
    log = tmp_path / "mac/var/log/a.log"
    async with served(tmp_path / "mac", may_sudo=True) as (host, mac):
        await loaded(mac)
        await until(lambda: log.read_text() == "m1\n")
        await mac.output_of("echo kept > file")
        key = host.host_key

    async with SimulatedHost(tmp_path / "mac", settings=SETTINGS) as again:
        client = Client(again)
        assert again.host_key == key
        assert await client.output_of("cat file; sudo id -un") == "kept\nroot\n"
        await until(lambda: log.read_text() == "m1\nm1\n")
        await client.close()


async def test_mac_is_served_once_and_on_a_free_port(tmp_path: Path) -> None:
    async with served(tmp_path / "mac") as (host, mac):
        with pytest.raises(BadConfiguration, match="already served by another process"):
            await SimulatedHost(tmp_path / "mac").__aenter__()
        with pytest.raises(BadConfiguration, match="Address already in use"):
            await SimulatedHost(tmp_path / "other", port=host.port).__aenter__()
        await mac.output_of("sw_vers")


@contextmanager
def command(root: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-P", "-c", "from bramley.cli.main import main; main()", "sim", "mac"]
    words += ["--root", str(root), "--listen", "127.0.0.1:0", *flags]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def printed_lines(process: subprocess.Popen[str]) -> dict[str, str]:
    """Read the printed lines until it serves."""
    assert process.stdout is not None
    lines: dict[str, str] = {}
    for connection in process.stdout:
        if "Ctrl-C" in connection:
            return lines
        name, _, rest = connection.strip().partition("   ")
        lines[name] = rest.strip()
    raise AssertionError(lines)


def private(path: Path) -> str:
    """Return the content of a file that only its owner can read."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    return path.read_text().strip()


async def test_command_prints_how_to_connect_and_no_process_survives_its_kill(
    tmp_path: Path,
) -> None:
    root, seconds = tmp_path / "mac", long()
    with command(root, "--ready") as process:
        printed = printed_lines(process)
        password = private(Path(printed["password"].removeprefix("in ")))
        port = int(printed["log in"].split()[2])
        async with asyncssh.connect(
            "127.0.0.1", port, username="m1", password=password,
            known_hosts=None, client_keys=None, agent_path=None, config=None,
        ) as connection:  # fmt: skip
            left = f"nohup sleep {seconds} </dev/null >/dev/null 2>&1 &"
            done = await connection.run(f"sudo id -un; {left}")
            assert done.stdout == "root\n"
            # The shell answers before what it left in the background is what it will be.
            await until(lambda: sleeping(seconds))

        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: not sleeping(seconds))


async def test_mac_after_an_interrupted_first_start_has_a_valid_password(tmp_path: Path) -> None:
    root = tmp_path / "mac"
    with pytest.raises(OSError, match="No space"):
        Mac.create(root, settings=Settings(free_bytes=0))
    (root / ".mac/password").write_text("of the first start\n")

    async with sim_mac.host(sim_mac.Settings(root=root, listen=Address("127.0.0.1", 0))) as host:
        client = Client(host, private(root / ".mac/password"))
        assert await client.output_of("id -un") == "m1\n"
        await client.close()


async def test_ctrl_c_ends_the_command_cleanly(tmp_path: Path) -> None:
    with command(tmp_path / "mac") as process:
        printed_lines(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_SECONDS) == 0


def long() -> str:
    """Return a unique sleep duration, by which our process is found."""
    return str(10**8 + secrets.randbelow(9 * 10**8))


def sleeping(seconds: str) -> bool:
    return any(each.argv == ("sleep", seconds) for each in platform.current().processes())
