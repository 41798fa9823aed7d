"""OpenSSH's server on this machine with its own configuration and keys, and stand-ins for programs that need a Mac or root.

The stand-ins come first in PATH: a sudo that is configured by files, a sync without effect, and a dscl that prompts on the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import grp
import os
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from bramley.base.secret import Secret
from bramley.host.ssh import Credentials, HostKeys, Pin, Target

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
# For a busy machine; it passes only when a test fails.
TIMEOUT = 180.0
_MAX_STARTS = 5
_BANNER_TIMEOUT = 10.0
PROGRAMS = {
    # Reads a password like sudo: one line of its input and not a byte more, at most three times.
    "sudo": """
home=${0%/*}/..
may_ask=no prompt='Password:'
while [ "$#" -gt 0 ]; do
    case $1 in
    -n | -H) shift ;;
    -u) shift 2 ;;
    -S) may_ask=yes; shift ;;
    -p) prompt=$2; shift 2 ;;
    --) shift; break ;;
    *) break ;;
    esac
done
if [ -e "$home/sudo-refuses" ]; then
    echo 'm1 is not in the sudoers file.' >&2
    exit 1
fi
if [ -e "$home/sudo-password" ]; then
    if [ "$may_ask" = no ]; then
        echo 'sudo: a password is required' >&2
        exit 1
    fi
    for try in 1 2 3; do
        printf %s "$prompt" >&2
        IFS= read -r line || exit 1
        echo "$try" >>"$home/sudo-tries"
        if [ "$line" = "$(cat "$home/sudo-password")" ]; then
            exec "$@"
        fi
        echo 'Sorry, try again.' >&2
    done
    echo 'sudo: 3 incorrect password attempts' >&2
    exit 1
fi
exec "$@"
""",
    "sync": "exit 0\n",
    "dscl": """
printf 'Password:' >/dev/tty
IFS= read -r line </dev/tty
[ "$line" = "$(cat "${0%/*}/../password")" ] && exit 0
echo "DS Error: -14090 ($line)"
exit 165
""",
}


@dataclass(slots=True)
class Server:
    """A running sshd."""

    home: Path
    port: int
    key: asyncssh.SSHKey
    process: asyncio.subprocess.Process
    # A part of its banner, which distinguishes it from another server on the same port.
    banner_token: str

    @property
    def owner(self) -> str:
        """Return the owner that files may have here."""
        return f"{getpass.getuser()}:{grp.getgrgid(os.getgid()).gr_name}"

    @property
    def credentials(self) -> Credentials:
        """Return a key that the server accepts."""
        return Credentials(private_keys=(private(self.key),))

    def target(
        self,
        *,
        credentials: Credentials | None = None,
        host_keys: HostKeys | None = None,
        jump: Target | None = None,
        port: int = 0,
    ) -> Target:
        """Return this server as a target."""
        return Target(
            host="127.0.0.1",
            port=port or self.port,
            user=getpass.getuser(),
            credentials=credentials or self.credentials,
            host_keys=host_keys or Pin(),
            jump=jump,
            name="mac",
        )

    async def stop(self) -> None:
        """Stop the server; open connections have their own processes and stay."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        await self.process.wait()


def private(key: asyncssh.SSHKey) -> Secret:
    """Return a private key as a Secret's text."""
    return Secret(key.export_private_key("openssh").decode())


def new_key() -> asyncssh.SSHKey:
    """Return a new private key."""
    return asyncssh.generate_private_key("ssh-ed25519")


@contextlib.contextmanager
def unused_port() -> Iterator[int]:
    """Yield a port on which no process listens or can listen while this context is active."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@contextlib.asynccontextmanager
async def serving(home: Path) -> AsyncIterator[Server]:
    """Run an sshd whose files are in a folder."""
    key, host_key = new_key(), new_key()
    for _ in range(_MAX_STARTS):
        # The port is free until sshd binds it, so another process may bind it first; then sshd exits and another port is tried.
        server = await _start(home, key, host_key)
        try:
            if await _is_listening(server):
                yield server
                return
        finally:
            await server.stop()
    raise AssertionError("sshd exits at once")


async def _start(home: Path, key: asyncssh.SSHKey, host_key: asyncssh.SSHKey) -> Server:
    with unused_port() as port:
        token = secrets.token_hex(8)
        _lay_out(home, key, host_key, f"Port {port}\nVersionAddendum {token}\n")
    process = await asyncio.create_subprocess_exec(
        *_sandbox(), str(shutil.which("sshd", path=PATH)), "-D", "-e", "-f", str(home / "sshd_config"),
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    return Server(home, port, key, process, token)


def _sandbox() -> list[str]:
    """Return a wrapper that gives sshd as root the empty folder it requires, without creating one on this machine."""
    if os.geteuid():
        return []
    return [
        "bwrap",
        "--dev-bind",
        "/",
        "/",
        "--tmpfs",
        "/run",
        "--dir",
        "/run/sshd",
        "--die-with-parent",
        "--",
    ]


def _lay_out(home: Path, key: asyncssh.SSHKey, host_key: asyncssh.SSHKey, more: str) -> None:
    programs = home / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}")
        (programs / name).chmod(0o755)
    (home / "authorized_keys").write_bytes(key.export_public_key())
    (home / "host_key").touch(mode=0o600)
    (home / "host_key").write_bytes(host_key.export_private_key("openssh"))
    (home / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\n{more}HostKey {home}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {home}/authorized_keys\nStrictModes no\nUsePAM no\nUseDNS no\n"
        f"PasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\nSetEnv PATH={programs}:{PATH} HOME={home}\n"
    )


async def _is_listening(server: Server) -> bool:
    """Wait until this server listens on its port; false if it exits before."""
    async with asyncio.timeout(TIMEOUT):
        while server.process.returncode is None:
            with contextlib.suppress(OSError):
                if server.banner_token.encode() in await _banner(server.port):
                    return True
            await asyncio.sleep(0.05)
    return False


async def _banner(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(_BANNER_TIMEOUT):
            return await reader.readline()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
