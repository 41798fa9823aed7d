"""Who is let in, and whom we trust: through OpenSSH's own server, and one that writes down what is said to it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncssh
import pytest

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import Depot
from bramley.host.commands import Run
from bramley.host.ssh import Credentials, KnownHosts, Pin, Target
from tests.process.host_ssh import cutting, openssh

TRUE = Run(argv=("true",), purpose="try it")
PATIENT, AT_ONCE = timedelta(seconds=openssh.PATIENCE), timedelta(0)


def printed(*argv: str) -> str:
    return subprocess.run(
        argv, capture_output=True, text=True, check=True, timeout=openssh.PATIENCE
    ).stdout


async def logged_in(target: Target, *, patience: timedelta = PATIENT) -> None:
    async with ssh.open(target, clock=SystemClock(), artifacts=Depot(), patience=patience) as mac:
        await mac.do(TRUE)


async def test_a_key_is_let_in_and_the_host_key_is_what_ssh_keygen_shows(tmp_path: Path) -> None:
    async with openssh.serving(tmp_path) as server:
        pin = Pin()
        await logged_in(server.target(host_keys=pin))
        await logged_in(server.target(host_keys=Pin(pin.text)))

    shown = printed("ssh-keygen", "-lf", f"{tmp_path}/host_key")
    assert pin.text.split() == ["ssh-ed25519", shown.split()[1]]


async def test_a_wrong_key_is_refused_at_once_and_the_host_key_is_known_all_the_same(
    tmp_path: Path,
) -> None:
    async with openssh.serving(tmp_path) as server:
        pin = Pin()
        wrong = Credentials(private_keys=(openssh.private(openssh.new_key()),))
        with pytest.raises(errors.Unauthorized, match=r"^mac: nothing .* was accepted \(key\)"):
            async with ssh.open(
                server.target(credentials=wrong, host_keys=pin),
                clock=SystemClock(),
                artifacts=Depot(),
            ):
                pass

        assert pin.text.startswith("ssh-ed25519 SHA256:")
        await logged_in(server.target(host_keys=Pin(pin.text)))


async def test_a_key_that_is_locked_or_none_is_told_before_anything_is_dialled(
    tmp_path: Path,
) -> None:
    async with openssh.serving(tmp_path) as server:
        locked = Secret(server.key.export_private_key("pkcs8-pem", passphrase="opens").decode())
        cases = {
            "locked by a passphrase": Credentials(private_keys=(locked,)),
            "cannot be read": Credentials(private_keys=(Secret("canary"),)),
        }
        for reason, credentials in cases.items():
            pin = Pin()
            with pytest.raises(errors.BadConfiguration, match=reason) as caught:
                await logged_in(server.target(credentials=credentials, host_keys=pin))
            assert pin.text == ""
            assert "canary" not in str(caught.value)


async def test_an_agent_lends_its_key_and_one_that_is_gone_is_told(tmp_path: Path) -> None:
    async with openssh.serving(tmp_path) as server, agent_with(tmp_path, server.key) as socket:
        await logged_in(server.target(credentials=Credentials(agent=str(socket))))
        with pytest.raises(errors.BadConfiguration, match=r"agent at .*none does not answer"):
            await logged_in(server.target(credentials=Credentials(agent=f"{tmp_path}/none")))


@contextlib.asynccontextmanager
async def agent_with(folder: Path, key: asyncssh.SSHKey) -> AsyncIterator[Path]:
    socket = folder / "agent"
    process = await asyncio.create_subprocess_exec(
        "ssh-agent", "-D", "-a", str(socket), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(openssh.PATIENCE):
            agent = await connected_to(socket)
            async with agent:
                await agent.add_keys([key])
        yield socket
    finally:
        process.terminate()
        await process.wait()


async def connected_to(socket: Path) -> asyncssh.SSHAgentClient:
    """Connect to an agent that has just begun: its socket is there before it listens on it."""
    while True:
        with contextlib.suppress(OSError):
            return await asyncssh.connect_agent(str(socket))
        await asyncio.sleep(0.02)


async def test_a_mac_is_reached_through_a_jump_host_whose_key_is_pinned_too(tmp_path: Path) -> None:
    async with openssh.serving(tmp_path) as server:
        jump_pin, pin = Pin(), Pin()
        jump = server.target(host_keys=jump_pin)
        await logged_in(server.target(through=jump, host_keys=pin))
        assert jump_pin.text == pin.text != ""

        changed = server.target(host_keys=Pin("ssh-ed25519 SHA256:other"))
        with pytest.raises(errors.HostKeyChanged):
            await logged_in(server.target(through=changed))


async def test_a_mac_that_is_not_reached_leaves_no_line_to_the_jump_host(tmp_path: Path) -> None:
    async with openssh.serving(tmp_path) as server, cutting.to(server.port) as line:
        jump = server.target(port=line.port)
        with openssh.port_of_nobody() as port, pytest.raises(errors.HostUnreachable):
            await logged_in(server.target(through=jump, port=port), patience=AT_ONCE)

        assert line.connections == 1
        async with asyncio.timeout(openssh.PATIENCE):
            while line.is_open:
                await asyncio.sleep(0.02)


async def test_a_reinstalled_mac_is_refused_until_its_old_key_is_forgotten(tmp_path: Path) -> None:
    known = KnownHosts(tmp_path / "known_hosts")
    async with openssh.serving(tmp_path / "one") as old, cutting.to(old.port) as line:
        await logged_in(old.target(host_keys=known, port=line.port))
        await reinstalled(tmp_path / "two", line, known)


async def reinstalled(home: Path, line: cutting.Line, known: KnownHosts) -> None:
    """Let another server answer where the old one did."""
    async with openssh.serving(home) as server:
        line.server = server.port
        target = server.target(host_keys=known, port=line.port)
        with pytest.raises(errors.HostKeyChanged, match="ssh-keygen -R") as caught:
            await logged_in(target)
        advised = str(caught.value).split("run: ")[1].split(" and connect")[0]
        printed("sh", "-c", advised)

        await logged_in(target)
        known.forget(target.host, target.port)
        await logged_in(target)


async def test_an_entry_that_ssh_itself_wrote_hashed_is_known(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    async with openssh.serving(tmp_path / "sshd") as server:
        await logged_in(server.target(host_keys=KnownHosts(file)))
        printed("ssh-keygen", "-H", "-f", str(file))
        before = file.read_bytes()
        assert before.startswith(b"|1|")

        await logged_in(server.target(host_keys=KnownHosts(file)))
    assert file.read_bytes() == before


class Writing(asyncssh.SSHServer):
    """A server that writes down who tries to log in, and with which password; it offers two ways for one."""

    said: list[str]

    def begin_auth(self, username: str) -> bool:
        self.said.append(username)
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        self.said.append(f"{username}: {password}")
        return False

    def kbdint_auth_supported(self) -> bool:
        return True


@contextlib.asynccontextmanager
async def writing() -> AsyncIterator[tuple[int, list[str]]]:
    said: list[str] = []

    def server() -> Writing:
        made = Writing()
        made.said = said
        return made

    acceptor = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=server, server_host_keys=[openssh.new_key()]
    )
    async with acceptor:
        yield acceptor.get_port(), said


def by_password(port: int, pin: Pin) -> Target:
    return Target(
        host="127.0.0.1",
        port=port,
        user="m1",
        credentials=Credentials(password=Secret("canary")),
        host_keys=pin,
    )


async def test_a_changed_key_ends_the_line_before_anybody_is_named() -> None:
    async with writing() as (port, said):
        with pytest.raises(errors.HostKeyChanged, match="nothing was sent"):
            await logged_in(by_password(port, Pin("ssh-ed25519 SHA256:other")))
        assert said == []


async def test_a_wrong_password_is_sent_once_whatever_ways_the_server_offers() -> None:
    async with writing() as (port, said):
        with pytest.raises(errors.Unauthorized) as caught:
            await logged_in(by_password(port, Pin()))
        assert said == ["m1", "m1: canary"]
        assert "canary" not in str(caught.value)


async def test_nobody_there_is_told_with_the_reason() -> None:
    told = r"^m1@127.0.0.1:\d+: no SSH connection: .*refused"
    with openssh.port_of_nobody() as port, pytest.raises(errors.HostUnreachable, match=told):
        await logged_in(by_password(port, Pin()), patience=AT_ONCE)


async def test_a_server_that_says_nothing_is_left_without_a_trace() -> None:
    arrived, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        while await reader.read(1024):
            pass
        writer.close()
        left.set()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        target = by_password(server.sockets[0].getsockname()[1], Pin())
        async with asyncio.timeout(openssh.PATIENCE), asyncio.TaskGroup() as group:
            calling = group.create_task(logged_in(target))
            await arrived.wait()
            calling.cancel()
            await left.wait()
