"""A PostgreSQL server with its durable defaults, in a folder on a disk that its unprivileged user can reach."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.apiserver.servers import BARE, NO_PORTS, ProcessFolder
from tests.postgres_server import (
    START_SECONDS,
    PostgresServer,
    call,
    program,
    unprivileged_user,
)
from tools import tiers
from tools.kube import processes
from tools.kube.instance import Written
from tools.kube.processes import ProcessRecord

# Not /tmp, which is often memory, where durable commits cost nothing.
DISK = Path("/var/tmp")  # noqa: S108 - the folder below has a random name


class NotInstalled(Exception):
    """A program that is compared is missing."""


@contextmanager
def running(recorded_in: ProcessFolder) -> Iterator[PostgresServer]:
    """Start a server with an empty data folder; the watchdog of the process folder stops it if this process is killed."""
    if not tiers.POSTGRES.found:
        package = tiers.POSTGRES.package
        raise NotInstalled(f"postgres is not installed; install it with: apt install {package}")
    folder = Path(tempfile.mkdtemp(prefix="bramley-bench-pg-", dir=DISK))
    user = unprivileged_user()
    try:
        if user is not None:
            shutil.chown(folder, user)
        call(folder, user, "initdb", "--username=bramley", "--auth=trust", "-D", "data")
        server = PostgresServer(folder, user, _launched(folder, user, recorded_in))
        try:
            server.wait_until_ready()
            yield server
        finally:
            server.process.send_signal(signal.SIGINT)
            server.process.wait(START_SECONDS)
    finally:
        shutil.rmtree(folder)


def _launched(
    folder: Path, user: str | None, recorded_in: ProcessFolder
) -> subprocess.Popen[bytes]:
    settings = ("listen_addresses=", f"unix_socket_directories={folder}")
    process = subprocess.Popen(
        [program("postgres"), "-D", "data", *(f"-c{each}" for each in settings)],
        cwd=folder,
        user=user,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    started = processes.identity(process.pid) or ""
    record = ProcessRecord("postgres", process.pid, started, str(folder / "none.log"))
    written = recorded_in.instance.read() or Written(BARE, NO_PORTS)
    changed = msgspec.structs.replace(written, processes=(*written.processes, record))
    recorded_in.instance.write(changed)
    return process
