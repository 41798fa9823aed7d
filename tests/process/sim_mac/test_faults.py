"""Configured faults of a simulated Mac."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import asyncssh
import pytest

from bramley.sim.ssh.faults import Fault, FaultKind
from tests.process.sim_mac.ssh_client import served, until


async def test_connection_is_cut_before_within_or_after_a_command(tmp_path: Path) -> None:
    home = tmp_path / "mac/Users/m1"
    async with served(tmp_path / "mac") as (host, mac):
        host.faults.set(Fault(do=FaultKind.CUT_BEFORE, match="*before*", skip=1, times=1))
        await mac.output_of("echo 1 > before-1")
        assert (await mac.run("echo 2 > before-2")).exit_status is None
        await mac.output_of("echo 3 > before-3")
        assert sorted(each.name for each in home.glob("before-*")) == ["before-1", "before-3"]

        host.faults.set(Fault(do=FaultKind.CUT_AFTER, times=1))
        assert (await mac.run("echo done > after")).exit_status is None
        assert (home / "after").read_text() == "done\n"

        host.faults.set(Fault(do=FaultKind.CUT_ANSWER, bytes=5, times=1))
        cut = await mac.run("echo an answer; sleep 1000")
        assert (cut.exit_status, cut.stdout) == (None, b"an an")

        # The command continues, as with every sshd, and must detect that its input ended too early.
        host.faults.set(Fault(do=FaultKind.CUT_AT, bytes=70_000, times=1))
        assert (await mac.run("cat > at; echo $? > went-on", b"x" * 200_000)).exit_status is None
        await until((home / "went-on").exists)
        assert (home / "at").stat().st_size == 70_000


async def test_full_disk_applies_to_root(tmp_path: Path) -> None:
    async with served(tmp_path / "mac", may_sudo=True) as (host, mac):
        host.faults.set(Fault(do=FaultKind.DISK_FULL, bytes=1000))
        assert "No space left on device" in await mac.error_of("cat > big", b"x" * 5000)
        output = await mac.error_of("sudo sh -c 'cat > /opt/big'", b"x" * 5000)
        assert "No space left on device" in output

        host.faults.set()
        await mac.output_of("cat > big", b"x" * 5000)


async def test_sudo_refuses_and_commands_hang_as_long_as_configured(tmp_path: Path) -> None:
    async with served(tmp_path / "mac", may_sudo=True) as (host, mac):
        host.faults.set(
            Fault(do=FaultKind.REFUSE_SUDO, times=1), Fault(do=FaultKind.HANG, match="*launchctl*")
        )
        assert "not in the sudoers file" in await mac.error_of("sudo true")
        await mac.output_of("sudo true")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await (await mac.connection()).run("launchctl list")
        host.faults.set()
        await mac.output_of("launchctl list")


async def test_slow_connection_has_the_configured_bandwidth(tmp_path: Path) -> None:
    async with served(tmp_path / "mac") as (host, mac):
        host.faults.set(Fault(do=FaultKind.SLOW, bytes=10_000))
        begun = asyncio.get_running_loop().time()
        assert (await mac.output_of("wc -c", b"x" * 5000)).strip() == "5000"
        assert asyncio.get_running_loop().time() - begun >= 0.5


async def test_host_key_changes_and_changes_back(tmp_path: Path) -> None:
    async with served(tmp_path / "mac") as (host, _):
        first = host.host_key
        known = asyncssh.import_known_hosts(f"[127.0.0.1]:{host.port} {first}\n")

        async def connect() -> None:
            connection = await asyncssh.connect(
                "127.0.0.1", host.port, username="m1", password="wrong",
                known_hosts=known, client_keys=None, agent_path=None, config=None,
            )  # fmt: skip
            connection.close()

        with pytest.raises(asyncssh.PermissionDenied):
            await connect()
        host.faults.set(Fault(do=FaultKind.OTHER_HOST_KEY))
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            await connect()
        host.faults.set()
        assert host.host_key == first
        host.change_host_key()
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            await connect()


async def test_faults_are_read_from_a_valid_file_only(tmp_path: Path) -> None:
    async with served(tmp_path / "mac") as (_, mac):
        path = tmp_path / "mac/.mac/faults.json"
        path.write_text(json.dumps([{"do": "cut-before", "match": "true", "times": 1}]))
        assert (await mac.run("true")).exit_status is None
        await mac.output_of("true")

        path.write_text(json.dumps([{"do": "cut-before", "tiems": 1}]))
        assert "tiems" in await mac.error_of("true")

        path.unlink()
        await mac.output_of("true")
