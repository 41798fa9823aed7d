"""A PostgreSQL server of the tests' own: Debian's program, run by an unprivileged user on a socket in its own folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tools import tiers

START_SECONDS = 60


@dataclass(slots=True)
class PostgresServer:
    folder: Path
    user: str | None
    process: subprocess.Popen[bytes]
    created: int = 0

    def url(self, database: str) -> str:
        return f"host={self.folder} user=bramley dbname={database} password=canary-password"

    def new_database(self) -> str:
        self.created += 1
        name = f"test{self.created}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def restart(self) -> None:
        """Kill every process of the server as a crash would, and start it again."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill every process of the server as a crash would."""
        # SIGQUIT and not SIGKILL, after which the children would live for a moment and keep another server from its start.
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(START_SECONDS)

    def start(self) -> None:
        """Start the server again, and wait until it has recovered."""
        self.process = launched(self.folder, self.user)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.05)
            else:
                return


@contextlib.contextmanager
def running() -> Iterator[PostgresServer]:
    """Start a server with an empty data folder, and stop it by its own process."""
    # Short and readable by the other user: a socket's path has about a hundred bytes, and pytest's folders are private.
    folder = Path(tempfile.mkdtemp(prefix="bramley-pg-"))
    user = unprivileged_user()
    try:
        if user is not None:
            shutil.chown(folder, user)
        call(
            folder, user, "initdb", "--username=bramley", "--auth=trust", "--no-sync", "-D", "data"
        )
        server = PostgresServer(folder, user, launched(folder, user))
        try:
            server.wait_until_ready()
            yield server
        finally:
            server.process.send_signal(signal.SIGINT)
            server.process.wait(START_SECONDS)
    finally:
        shutil.rmtree(folder)


def launched(folder: Path, user: str | None) -> subprocess.Popen[bytes]:
    settings = ("listen_addresses=", f"unix_socket_directories={folder}", "fsync=off")
    command = [program("postgres"), "-D", "data", *(f"-c{each}" for each in settings)]
    return subprocess.Popen(
        command, cwd=folder, user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def call(folder: Path, user: str | None, name: str, *arguments: str) -> None:
    command = [program(name), *arguments]
    subprocess.run(command, cwd=folder, user=user, check=True, capture_output=True)


def program(name: str) -> str:
    postgres = tiers.POSTGRES.path
    assert postgres is not None
    return str(postgres.resolve().with_name(name))


def unprivileged_user() -> str | None:
    """Return the user that PostgreSQL runs as when the tests run as root, which it refuses."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
