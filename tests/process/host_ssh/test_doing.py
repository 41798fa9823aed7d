"""Commands through OpenSSH's own server: sudo, prompts, deadlines, streams and lines that break."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import Depot
from bramley.host.commands import Look, Run, Stream, Wait, Write
from bramley.host.ssh import SshConnection
from tests.process.host_ssh import cutting, openssh

# Another one in each run: it is looked for among all processes of this machine.
CANARY = Secret(f"canary-{secrets.token_hex(8)}")
SIZE = 4 * 1024 * 1024
PATIENT = timedelta(seconds=openssh.PATIENCE)


@contextlib.asynccontextmanager
async def connected(
    home: Path, *, depot: Depot | None = None, port: int = 0
) -> AsyncIterator[tuple[openssh.Server, SshConnection]]:
    async with (
        openssh.serving(home) as server,
        ssh.open(
            server.target(port=port),
            clock=SystemClock(),
            artifacts=depot or Depot(),
            patience=PATIENT,
        ) as mac,
    ):
        yield server, mac


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(openssh.PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


def processes() -> str:
    """Return the command lines of every process of this machine."""
    return printed("ps", "-A", "-ww", "-o", "args=")


def printed(*argv: str) -> str:
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=openssh.PATIENCE
    ).stdout


async def test_sudo_gets_its_password_and_the_program_its_input(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, mac):
        (tmp_path / "sudo-password").write_text(CANARY.reveal())
        path = tmp_path / "sudoers"
        await mac.do(
            Write(
                path=str(path),
                content=b"m1 ALL=(ALL) NOPASSWD: ALL\n",
                purpose="let sudo be",
                owner=server.owner,
                mode=0o440,
                check=("grep", "-q", "NOPASSWD", "{}"),
                sudo_password=CANARY,
            )
        )
        read = Run(
            argv=("grep", "-q", "^two$"),
            purpose="read",
            as_root=True,
            sudo_password=CANARY,
            stdin=b"one\ntwo",
        )
        await mac.do(read)
        # Where sudo does not ask, nobody gets the password for a line of input.
        (tmp_path / "sudo-password").unlink()
        await mac.do(read)
        count = ("sh", "-c", '[ "$(cat)" = only ]')
        await mac.do(
            Run(argv=count, purpose="read", as_root=True, sudo_password=CANARY, stdin=b"only")
        )
    assert path.read_bytes() == b"m1 ALL=(ALL) NOPASSWD: ALL\n"
    assert (tmp_path / "sudo-tries").read_text().split() == ["1", "1"]


async def test_a_wrong_password_is_tried_once_and_a_refusal_is_told(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        (tmp_path / "sudo-password").write_text("right")
        wrong = Run(argv=("true",), purpose="try", as_root=True, sudo_password=CANARY)
        for _ in range(3):
            with pytest.raises(
                errors.Unauthorized, match=r"^mac: try: sudo does not take this password"
            ):
                await mac.do(wrong)
        assert (tmp_path / "sudo-tries").read_text().split() == ["1"]

        plain = Run(argv=("true",), purpose="try", as_root=True, accepts=(0, 1))
        with pytest.raises(errors.CommandFailed, match="code 1: sudo: a password is required"):
            await mac.do(plain)
        (tmp_path / "sudo-refuses").touch()
        with pytest.raises(errors.CommandFailed, match="m1 is not in the sudoers file"):
            await mac.do(
                Run(argv=("true",), purpose="try", as_root=True, sudo_password=Secret("right"))
            )


async def test_a_password_is_typed_at_a_prompt_without_echo(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        (tmp_path / "password").write_text(CANARY.reveal())
        check = ("dscl", ".", "-authonly", "m1")
        await mac.do(Run(argv=check, purpose="check", prompt="Password:", stdin=CANARY))
        with pytest.raises(errors.CommandFailed, match=r"code 165: .*-14090") as caught:
            await mac.do(
                Run(argv=check, purpose="check", prompt="Password:", stdin=Secret("canary-wrong"))
            )
        assert "canary" not in str(caught.value)
        # What comes back on the terminal is the program's own: nothing of what was typed.
        echo = ("sh", "-c", 'printf Ask:; read -r line; echo "${#line}"; exit 9')
        with pytest.raises(errors.CommandFailed, match=r"Ask: ?4$"):
            await mac.do(Run(argv=echo, purpose="check", prompt="Ask:", stdin=b"quiz"))


async def test_secrets_are_in_no_process_table_while_they_are_used(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        (tmp_path / "sudo-password").write_text(CANARY.reveal())
        ready, go = tmp_path / "ready", tmp_path / "go"
        script = f'cat >/dev/null; touch "{ready}"; while [ ! -e "{go}" ]; do sleep 0.05; done'
        run = Run(
            argv=("sh", "-c", script),
            purpose="hold",
            as_root=True,
            sudo_password=CANARY,
            stdin=CANARY,
        )
        async with asyncio.TaskGroup() as group:
            doing = group.create_task(mac.do(run))
            await until(ready.exists)
            table = processes()
            go.touch()
            await doing
    assert "ready" in table
    assert CANARY.reveal() not in table


@pytest.mark.parametrize("way", ["cancel", "close"])
async def test_who_gives_up_leaves_nothing_running_on_the_mac(tmp_path: Path, way: str) -> None:
    async with connected(tmp_path) as (_, mac):
        file = tmp_path / "pid"
        argv = ("sh", "-c", f'echo $$ >"{file}.new"; mv "{file}.new" "{file}"; sleep 300; true')
        async with asyncio.TaskGroup() as group:
            doing = group.create_task(
                expect_given_up(mac, Run(argv=argv, purpose="hang", as_root=True))
            )
            await until(file.exists)
            if way == "cancel":
                doing.cancel()
            else:
                await mac.close()
        pid = int(file.read_text())
        await until(lambda: not is_alive(pid))
        # The next command dials again where it must.
        await mac.do(Run(argv=("true",), purpose="go on"))


async def test_after_its_deadline_nothing_of_a_program_is_running(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        named = f"{tmp_path}/named"
        argv = ("sh", "-c", "while :; do sleep 1; done", named)
        hang = Run(argv=argv, purpose="hang", as_root=True, within=timedelta(seconds=2))
        with pytest.raises(
            errors.TimedOut, match=r"^mac: hang: no end within 2 s; it was stopped$"
        ):
            await mac.do(hang)
        await until(lambda: named not in processes())


async def test_a_program_that_never_asks_is_hung_up_with_its_terminal(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        file = tmp_path / "pid"
        argv = ("sh", "-c", f'echo $$ >"{file}.new"; mv "{file}.new" "{file}"; sleep 300; true')
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(mac.do(Run(argv=argv, purpose="ask", prompt="Ask:")))
            await until(file.exists)
            asking.cancel()
        pid = int(file.read_text())
        await until(lambda: not is_alive(pid))


async def test_a_large_content_arrives_whole(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, mac):
        content = os.urandom(1024 * 1024)
        path = tmp_path / "large"
        await mac.do(Write(path=str(path), content=content, purpose="write", owner=server.owner))
    assert path.read_bytes() == content


async def expect_given_up(mac: SshConnection, run: Run) -> None:
    with pytest.raises(errors.HostUnreachable, match=r"^mac: hang: "):
        await mac.do(run)


def is_alive(pid: int) -> bool:
    state = printed("ps", "-o", "stat=", "-p", str(pid)).strip()
    return bool(state) and not state.startswith("Z")


@pytest.mark.parametrize("at", [100_000, 1_500_000])
async def test_a_stream_that_breaks_leaves_the_old_file_and_the_next_one_brings_the_new(
    tmp_path: Path, at: int
) -> None:
    content = os.urandom(SIZE)
    source, path = tmp_path / "source", tmp_path / "mac" / "binary"
    prepare(source, path, content)
    depot = Depot()
    artifact = await depot.take(source, name="agent", version="1")
    async with openssh.serving(tmp_path / "sshd") as server, cutting.to(server.port) as line:
        stream = Stream(
            artifact=artifact, path=str(path), purpose="bring", mode=0o755, owner=server.owner
        )
        async with ssh.open(
            server.target(port=line.port),
            clock=SystemClock(),
            artifacts=depot,
            patience=PATIENT,
        ) as mac:
            line.breaks_after = at
            with pytest.raises(
                errors.HostUnreachable, match=r"^mac: bring: the connection was lost"
            ):
                await mac.do(stream)
            assert path.read_bytes() == b"old"
            line.breaks_after = None
            await mac.do(stream)
        assert line.connections == 2
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["binary"]


def prepare(source: Path, path: Path, content: bytes) -> None:
    source.write_bytes(content)
    path.parent.mkdir()
    path.write_bytes(b"old")


async def test_a_mac_that_cannot_take_a_stream_says_why_before_all_is_sent(tmp_path: Path) -> None:
    source = tmp_path / "source"
    prepare(source, tmp_path / "mac" / "binary", bytes(SIZE))
    depot = Depot()
    artifact = await depot.take(source, name="agent", version="1")
    async with connected(tmp_path / "sshd", depot=depot) as (server, mac):
        for path, reason in {
            f"{tmp_path}/none/binary": "the folder .*/none is not there",
            f"{tmp_path}/mac": "is a folder",
        }.items():
            with pytest.raises(errors.CommandFailed, match=reason):
                await mac.do(
                    Stream(artifact=artifact, path=path, purpose="bring", owner=server.owner)
                )


async def test_a_wait_ends_when_the_answer_says_yes_or_its_time_is_over(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        flag = tmp_path / "flag"
        look = Look(("cat", str(flag)))
        soon = Wait(
            look=look,
            purpose="see",
            text="yes",
            every=timedelta(seconds=0.1),
            within=timedelta(seconds=1),
        )
        with pytest.raises(errors.TimedOut, match=r"^mac: see: not so within 1 s"):
            await mac.do(soon)
        flag.write_text("well, yes")
        await mac.do(soon)
