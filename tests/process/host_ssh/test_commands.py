"""Commands through OpenSSH's server: sudo, prompts, deadlines, streams and lost connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import ArtifactStore
from bramley.host.commands import Run, RunProbe, Stream, Wait, Write
from bramley.host.ssh import SshConnection
from tests.process.host_ssh import lossy_proxy, openssh
from tests.programs import run_program

# Unique in each run: it is searched for in all processes of this machine.
CANARY = Secret(f"canary-{secrets.token_hex(8)}")
SIZE = 4 * 1024 * 1024
LONG_TIMEOUT = timedelta(seconds=openssh.TIMEOUT)


@contextlib.asynccontextmanager
async def connected(
    home: Path, *, store: ArtifactStore | None = None, port: int = 0
) -> AsyncIterator[tuple[openssh.Server, SshConnection]]:
    async with (
        openssh.serving(home) as server,
        ssh.open(
            server.target(port=port),
            clock=SystemClock(),
            artifacts=store or ArtifactStore(),
            connect_timeout=LONG_TIMEOUT,
        ) as mac,
    ):
        yield server, mac


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(openssh.TIMEOUT):
        while not holds():
            await asyncio.sleep(0.02)


def processes() -> str:
    """Return the command lines of every process of this machine."""
    return printed("ps", "-A", "-ww", "-o", "args=")


def printed(*argv: str) -> str:
    return run_program(argv, timeout=openssh.TIMEOUT).stdout


async def test_sudo_gets_its_password_and_the_program_its_input(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, mac):
        (tmp_path / "sudo-password").write_text(CANARY.reveal())
        path = tmp_path / "sudoers"
        await mac.execute(
            Write(
                path=str(path),
                content=b"m1 ALL=(ALL) NOPASSWD: ALL\n",
                purpose="write the sudo rule",
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
        await mac.execute(read)
        # Without a prompt of sudo, the program must not get the password as input.
        (tmp_path / "sudo-password").unlink()
        await mac.execute(read)
        count = ("sh", "-c", '[ "$(cat)" = only ]')
        await mac.execute(
            Run(argv=count, purpose="read", as_root=True, sudo_password=CANARY, stdin=b"only")
        )
    assert path.read_bytes() == b"m1 ALL=(ALL) NOPASSWD: ALL\n"
    assert (tmp_path / "sudo-tries").read_text().split() == ["1", "1"]


async def test_wrong_sudo_password_is_tried_once_and_a_refusal_is_reported(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        (tmp_path / "sudo-password").write_text("right")
        wrong = Run(argv=("true",), purpose="try", as_root=True, sudo_password=CANARY)
        for _ in range(3):
            with pytest.raises(
                errors.Unauthorized, match=r"^mac: try: sudo does not accept this password"
            ):
                await mac.execute(wrong)
        assert (tmp_path / "sudo-tries").read_text().split() == ["1"]

        plain = Run(argv=("true",), purpose="try", as_root=True, accepted_codes=(0, 1))
        with pytest.raises(errors.CommandFailed, match="code 1: sudo: a password is required"):
            await mac.execute(plain)
        (tmp_path / "sudo-refuses").touch()
        with pytest.raises(errors.CommandFailed, match="m1 is not in the sudoers file"):
            await mac.execute(
                Run(argv=("true",), purpose="try", as_root=True, sudo_password=Secret("right"))
            )


async def test_password_is_typed_at_a_prompt_without_echo(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        (tmp_path / "password").write_text(CANARY.reveal())
        check = ("dscl", ".", "-authonly", "m1")
        await mac.execute(Run(argv=check, purpose="check", prompt="Password:", stdin=CANARY))
        with pytest.raises(errors.CommandFailed, match=r"code 165: .*-14090") as caught:
            await mac.execute(
                Run(argv=check, purpose="check", prompt="Password:", stdin=Secret("canary-wrong"))
            )
        assert "canary" not in str(caught.value)
        # The terminal returns only the output of the program, and no echo of the input.
        echo = ("sh", "-c", 'printf Ask:; read -r line; echo "${#line}"; exit 9')
        with pytest.raises(errors.CommandFailed, match=r"Ask: ?4$"):
            await mac.execute(Run(argv=echo, purpose="check", prompt="Ask:", stdin=b"quiz"))


async def test_secrets_in_use_are_not_in_the_process_table(tmp_path: Path) -> None:
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
            doing = group.create_task(mac.execute(run))
            await until(ready.exists)
            table = processes()
            go.touch()
            await doing
    assert "ready" in table
    assert CANARY.reveal() not in table


@pytest.mark.parametrize("action", ["cancel", "close"])
async def test_abandoned_command_is_ended_on_the_mac(tmp_path: Path, action: str) -> None:
    async with connected(tmp_path) as (_, mac):
        file = tmp_path / "pid"
        argv = ("sh", "-c", f'echo $$ >"{file}.new"; mv "{file}.new" "{file}"; sleep 300; true')
        async with asyncio.TaskGroup() as group:
            doing = group.create_task(
                expect_disconnected(mac, Run(argv=argv, purpose="hang", as_root=True))
            )
            await until(file.exists)
            if action == "cancel":
                doing.cancel()
            else:
                await mac.close()
        pid = int(file.read_text())
        await until(lambda: not is_alive(pid))
        # The next command connects again if necessary.
        await mac.execute(Run(argv=("true",), purpose="continue"))


async def test_program_is_ended_after_its_deadline(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        named = f"{tmp_path}/named"
        argv = ("sh", "-c", "while :; do sleep 1; done", named)
        hang = Run(argv=argv, purpose="hang", as_root=True, timeout=timedelta(seconds=2))
        with pytest.raises(
            errors.TimedOut, match=r"^mac: hang: did not finish within 2 s; it was stopped$"
        ):
            await mac.execute(hang)
        await until(lambda: named not in processes())


async def test_cancelled_program_without_a_prompt_is_ended_with_its_terminal(
    tmp_path: Path,
) -> None:
    async with connected(tmp_path) as (_, mac):
        file = tmp_path / "pid"
        argv = ("sh", "-c", f'echo $$ >"{file}.new"; mv "{file}.new" "{file}"; sleep 300; true')
        async with asyncio.TaskGroup() as group:
            running = group.create_task(mac.execute(Run(argv=argv, purpose="wait", prompt="Ask:")))
            await until(file.exists)
            running.cancel()
        pid = int(file.read_text())
        await until(lambda: not is_alive(pid))


async def test_large_content_arrives_completely(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, mac):
        content = os.urandom(1024 * 1024)
        path = tmp_path / "large"
        await mac.execute(
            Write(path=str(path), content=content, purpose="write", owner=server.owner)
        )
    assert path.read_bytes() == content


async def expect_disconnected(mac: SshConnection, run: Run) -> None:
    with pytest.raises(errors.HostUnreachable, match=r"^mac: hang: "):
        await mac.execute(run)


def is_alive(pid: int) -> bool:
    state = printed("ps", "-o", "stat=", "-p", str(pid)).strip()
    return bool(state) and not state.startswith("Z")


@pytest.mark.parametrize("at", [100_000, 1_500_000])
async def test_interrupted_stream_leaves_the_old_file_and_the_next_one_replaces_it(
    tmp_path: Path, at: int
) -> None:
    content = os.urandom(SIZE)
    source, path = tmp_path / "source", tmp_path / "mac" / "binary"
    prepare(source, path, content)
    store = ArtifactStore()
    artifact = await store.load(source, name="agent", version="1")
    async with openssh.serving(tmp_path / "sshd") as server, lossy_proxy.to(server.port) as proxy:
        stream = Stream(
            artifact=artifact, path=str(path), purpose="upload", mode=0o755, owner=server.owner
        )
        async with ssh.open(
            server.target(port=proxy.port),
            clock=SystemClock(),
            artifacts=store,
            connect_timeout=LONG_TIMEOUT,
        ) as mac:
            proxy.drop_after = at
            with pytest.raises(
                errors.HostUnreachable, match=r"^mac: upload: the connection was lost"
            ):
                await mac.execute(stream)
            assert path.read_bytes() == b"old"
            proxy.drop_after = None
            await mac.execute(stream)
        assert proxy.connections == 2
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["binary"]


def prepare(source: Path, path: Path, content: bytes) -> None:
    source.write_bytes(content)
    path.parent.mkdir()
    path.write_bytes(b"old")


async def test_stream_to_an_invalid_path_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    prepare(source, tmp_path / "mac" / "binary", bytes(SIZE))
    store = ArtifactStore()
    artifact = await store.load(source, name="agent", version="1")
    async with connected(tmp_path / "sshd", store=store) as (server, mac):
        for path, reason in {
            f"{tmp_path}/none/binary": "the folder .*/none does not exist",
            f"{tmp_path}/mac": "is a folder",
        }.items():
            with pytest.raises(errors.CommandFailed, match=reason):
                await mac.execute(
                    Stream(artifact=artifact, path=path, purpose="upload", owner=server.owner)
                )


async def test_wait_ends_with_the_expected_output_or_its_timeout(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, mac):
        flag = tmp_path / "flag"
        probe = RunProbe(("cat", str(flag)))
        wait = Wait(
            probe=probe,
            purpose="wait",
            text="yes",
            interval=timedelta(seconds=0.1),
            timeout=timedelta(seconds=1),
        )
        with pytest.raises(errors.TimedOut, match=r"^mac: wait: condition not met within 1 s"):
            await mac.execute(wait)
        flag.write_text("well, yes")
        await mac.execute(wait)
