"""OpenSSH's server as the one host that receives the same files from `scp` and from ours; sudo and sync are stand-ins."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from bench.apiserver.servers import ProcessFolder, StartFailed
from bench.streaming.artifacts import Staged
from tools.kube import control_plane

START_TIMEOUT = 60.0
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_SUDO = """
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
# sync would flush all disks of this machine, and scp does not call it.
_STAND_INS = {"sudo": _SUDO, "sync": "exit 0\n"}
_SSH_OPTIONS = (
    "-q", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
    "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sshd:
    """A running server, and the folder that it receives into."""

    staged: Staged
    port: int
    home: Path

    @property
    def into(self) -> Path:
        """Return the folder that it receives into."""
        return self.home / "received"

    async def scp(self) -> float:
        """Copy all artifacts with `scp`, and return the seconds that it took."""
        for path in self.into.iterdir():
            path.unlink()
        return await _timed(
            "scp", *_SSH_OPTIONS, "-i", str(self.staged.key), "-P", str(self.port),
            *map(str, self.staged.files), f"{getpass.getuser()}@127.0.0.1:{self.into}",
        )  # fmt: skip

    async def verify(self) -> float:
        """Compute the digests of all received files on the host, and return the seconds that it took."""
        names = [str(self.into / path.name) for path in self.staged.files]
        return await _timed(
            "ssh", *_SSH_OPTIONS, "-i", str(self.staged.key), "-p", str(self.port),
            f"{getpass.getuser()}@127.0.0.1", "openssl", "dgst", "-sha256", *names,
        )  # fmt: skip

    def check_received(self) -> None:
        """Check that all files were received completely."""
        for path in self.staged.files:
            if (self.into / path.name).stat().st_size != path.stat().st_size:
                raise StartFailed(f"{path.name} was not received completely")


async def _timed(*argv: str) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.DEVNULL)
    if await process.wait():
        raise StartFailed(f"{argv[0]} exited with code {process.returncode}")
    return time.perf_counter() - began


async def serve(process_folder: ProcessFolder, staged: Staged) -> Sshd:
    """Start a server that ends with the process folder."""
    (port,) = control_plane.free_ports(1)
    home = process_folder.folder / "sshd"
    _lay_out(home, staged, port)
    program = shutil.which("sshd", path=_PATH)
    if program is None:
        raise StartFailed("sshd is not installed; on Debian: apt-get install openssh-server")
    record = process_folder.run(
        "sshd", [*_sandbox(), program, "-D", "-e", "-f", str(home / "sshd_config")]
    )
    await _wait_listening(port, record.log)
    return Sshd(staged, port, home)


def _sandbox() -> list[str]:
    """Return a wrapper that gives sshd as root the empty folder it requires, without creating one on this machine."""
    if os.geteuid():
        return []
    return ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/run", "--dir", "/run/sshd", "--die-with-parent", "--"]  # fmt: skip


def _lay_out(home: Path, staged: Staged, port: int) -> None:
    programs = home / "programs"
    programs.mkdir(parents=True)
    (home / "received").mkdir()
    for name, text in _STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}")
        (programs / name).chmod(0o755)
    (home / "host_key").touch(mode=0o600)
    key = asyncssh.generate_private_key("ssh-ed25519")
    (home / "host_key").write_bytes(key.export_private_key("openssh"))
    (home / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {home}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {staged.authorized}\nStrictModes no\nUsePAM no\nUseDNS no\n"
        f"PasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\nSetEnv PATH={programs}:{_PATH} HOME={home}\n"
    )


async def _wait_listening(port: int, log: str) -> None:
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        banner = await reader.read(4)
        writer.close()
        if banner == b"SSH-":
            return
    raise StartFailed(f"sshd does not answer; see {log}")
