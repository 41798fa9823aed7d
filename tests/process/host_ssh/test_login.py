"""Login and host keys: through OpenSSH's server, and one that records login attempts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncssh
import pytest

from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import ArtifactStore
from bramley.host.commands import Run
from bramley.host.ssh import Credentials, KnownHosts, Pin, Target
from tests.process.host_ssh import lossy_proxy, openssh
from tests.programs import run_program

TRUE = Run(argv=("true",), purpose="run true")
LONG_TIMEOUT, NO_WAIT = timedelta(seconds=openssh.TIMEOUT), timedelta(0)


def printed(*argv: str) -> str:
    return run_program(argv, check=True, timeout=openssh.TIMEOUT).stdout


async def log_in(target: Target, *, connect_timeout: timedelta = LONG_TIMEOUT) -> None:
    async with ssh.open(
        target, clock=SystemClock(), artifacts=ArtifactStore(), connect_timeout=connect_timeout
    ) as mac:
        await mac.execute(TRUE)


async def test_key_is_accepted_and_the_pin_is_what_ssh_keygen_shows(tmp_path: Path) -> None:
    async with openssh.serving(tmp_path) as server:
        pin = Pin()
        await log_in(server.target(host_keys=pin))
        await log_in(server.target(host_keys=Pin(pin.text)))

    shown = printed("ssh-keygen", "-lf", f"{tmp_path}/host_key")
    assert pin.text.split() == ["ssh-ed25519", shown.split()[1]]


async def test_wrong_key_is_refused_at_once_and_the_host_key_is_pinned_even_so(
    tmp_path: Path,
) -> None:
    async with openssh.serving(tmp_path) as server:
        pin = Pin()
        wrong = Credentials(private_keys=(openssh.private(openssh.new_key()),))
        with pytest.raises(errors.Unauthorized, match=r"^mac: no credential was accepted \(key\)"):
            async with ssh.open(
                server.target(credentials=wrong, host_keys=pin),
                clock=SystemClock(),
                artifacts=ArtifactStore(),
            ):
                pass

        assert pin.text.startswith("ssh-ed25519 SHA256:")
        await log_in(server.target(host_keys=Pin(pin.text)))


async def test_encrypted_or_invalid_key_is_refused_before_the_connection(tmp_path: Path) -> None:
    async with openssh.serving(tmp_path) as server:
        encrypted = Secret(server.key.export_private_key("pkcs8-pem", passphrase="opens").decode())
        cases = {
            "encrypted with a passphrase": Credentials(private_keys=(encrypted,)),
            "cannot be read": Credentials(private_keys=(Secret("canary"),)),
        }
        for reason, credentials in cases.items():
            pin = Pin()
            with pytest.raises(errors.BadConfiguration, match=reason) as caught:
                await log_in(server.target(credentials=credentials, host_keys=pin))
            assert pin.text == ""
            assert "canary" not in str(caught.value)


async def test_ssh_agent_provides_its_key_and_a_missing_agent_is_an_error(tmp_path: Path) -> None:
    async with openssh.serving(tmp_path) as server, agent_with(tmp_path, server.key) as socket:
        await log_in(server.target(credentials=Credentials(agent=str(socket))))
        with pytest.raises(errors.BadConfiguration, match=r"agent at .*none does not answer"):
            await log_in(server.target(credentials=Credentials(agent=f"{tmp_path}/none")))


@contextlib.asynccontextmanager
async def agent_with(folder: Path, key: asyncssh.SSHKey) -> AsyncIterator[Path]:
    socket = folder / "agent"
    process = await asyncio.create_subprocess_exec(
        "ssh-agent", "-D", "-a", str(socket), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(openssh.TIMEOUT):
            agent = await connected_to(socket)
            async with agent:
                await agent.add_keys([key])
        yield socket
    finally:
        process.terminate()
        await process.wait()


async def connected_to(socket: Path) -> asyncssh.SSHAgentClient:
    """Connect to an agent that was just started: its socket exists before it listens."""
    while True:
        with contextlib.suppress(OSError):
            return await asyncssh.connect_agent(str(socket))
        await asyncio.sleep(0.02)


async def test_jump_host_is_used_and_its_key_is_pinned_too(tmp_path: Path) -> None:
    async with openssh.serving(tmp_path) as server:
        jump_pin, pin = Pin(), Pin()
        jump = server.target(host_keys=jump_pin)
        await log_in(server.target(jump=jump, host_keys=pin))
        assert jump_pin.text == pin.text != ""

        changed = server.target(host_keys=Pin("ssh-ed25519 SHA256:other"))
        with pytest.raises(errors.HostKeyChanged):
            await log_in(server.target(jump=changed))


async def test_connection_to_the_jump_host_is_closed_if_the_mac_is_unreachable(
    tmp_path: Path,
) -> None:
    async with openssh.serving(tmp_path) as server, lossy_proxy.to(server.port) as proxy:
        jump = server.target(port=proxy.port)
        with openssh.unused_port() as port, pytest.raises(errors.HostUnreachable):
            await log_in(server.target(jump=jump, port=port), connect_timeout=NO_WAIT)

        assert proxy.connections == 1
        async with asyncio.timeout(openssh.TIMEOUT):
            while proxy.is_open:
                await asyncio.sleep(0.02)


async def test_reinstalled_mac_is_refused_until_its_old_key_is_removed(tmp_path: Path) -> None:
    known = KnownHosts(tmp_path / "known_hosts")
    async with openssh.serving(tmp_path / "one") as old, lossy_proxy.to(old.port) as proxy:
        await log_in(old.target(host_keys=known, port=proxy.port))
        await check_reinstalled(tmp_path / "two", proxy, known)


async def check_reinstalled(home: Path, proxy: lossy_proxy.Proxy, known: KnownHosts) -> None:
    """Connect to another server at the address of the old one."""
    async with openssh.serving(home) as server:
        proxy.server = server.port
        target = server.target(host_keys=known, port=proxy.port)
        with pytest.raises(errors.HostKeyChanged, match="ssh-keygen -R") as caught:
            await log_in(target)
        command = str(caught.value).split("run: ")[1].split(" and connect")[0]
        printed("sh", "-c", command)

        await log_in(target)
        known.remove(target.host, target.port)
        await log_in(target)


async def test_hashed_entry_of_ssh_keygen_matches(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    async with openssh.serving(tmp_path / "sshd") as server:
        await log_in(server.target(host_keys=KnownHosts(file)))
        printed("ssh-keygen", "-H", "-f", str(file))
        before = file.read_bytes()
        assert before.startswith(b"|1|")

        await log_in(server.target(host_keys=KnownHosts(file)))
    assert file.read_bytes() == before


class RecordingServer(asyncssh.SSHServer):
    """Records users and passwords of login attempts; it offers two methods for passwords."""

    attempts: list[str]

    def begin_auth(self, username: str) -> bool:
        self.attempts.append(username)
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        self.attempts.append(f"{username}: {password}")
        return False

    def kbdint_auth_supported(self) -> bool:
        return True


@contextlib.asynccontextmanager
async def recording_server() -> AsyncIterator[tuple[int, list[str]]]:
    attempts: list[str] = []

    def server() -> RecordingServer:
        recording = RecordingServer()
        recording.attempts = attempts
        return recording

    acceptor = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=server, server_host_keys=[openssh.new_key()]
    )
    async with acceptor:
        yield acceptor.get_port(), attempts


def password_target(port: int, pin: Pin) -> Target:
    return Target(
        host="127.0.0.1",
        port=port,
        user="m1",
        credentials=Credentials(password=Secret("canary")),
        host_keys=pin,
    )


async def test_changed_host_key_ends_the_connection_before_the_login() -> None:
    async with recording_server() as (port, attempts):
        with pytest.raises(errors.HostKeyChanged, match="nothing was sent"):
            await log_in(password_target(port, Pin("ssh-ed25519 SHA256:other")))
        assert attempts == []


async def test_wrong_password_is_sent_once_for_all_methods_of_the_server() -> None:
    async with recording_server() as (port, attempts):
        with pytest.raises(errors.Unauthorized) as caught:
            await log_in(password_target(port, Pin()))
        assert attempts == ["m1", "m1: canary"]
        assert "canary" not in str(caught.value)


async def test_refused_connection_is_reported_with_the_reason() -> None:
    message = r"^m1@127.0.0.1:\d+: no SSH connection: .*refused"
    with openssh.unused_port() as port, pytest.raises(errors.HostUnreachable, match=message):
        await log_in(password_target(port, Pin()), connect_timeout=NO_WAIT)


async def test_connection_to_a_silent_server_is_closed_on_cancellation() -> None:
    connected, disconnected = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        while await reader.read(1024):
            pass
        writer.close()
        disconnected.set()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        target = password_target(server.sockets[0].getsockname()[1], Pin())
        async with asyncio.timeout(openssh.TIMEOUT), asyncio.TaskGroup() as group:
            connecting = group.create_task(log_in(target))
            await connected.wait()
            connecting.cancel()
            await disconnected.wait()
