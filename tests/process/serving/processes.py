"""Real `bramley` processes on loopback: started on a free port, called over TLS, stopped by pid."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.programs import run_program

BRAMLEY = Path(sys.executable).parent / "bramley"
# For a busy machine; only a failing test waits that long.
TIMEOUT_SECONDS = 180.0


def until(condition: Callable[[], Any], *, seconds: float = TIMEOUT_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)
    return answer


def clean_environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BRAMLEY_")}
    return {**kept, **more}


@dataclass(frozen=True, slots=True)
class Bramley:
    """One running process and where its files are."""

    process: subprocess.Popen[bytes]
    folder: Path
    kubeconfig: Path
    out: Path
    err: Path

    @property
    def access(self) -> tuple[str, str, str]:
        document = yaml.safe_load(self.kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        token = document["users"][0]["user"]["token"]
        return cluster["server"], cluster["certificate-authority-data"], token

    @property
    def token(self) -> str:
        return self.access[2]

    def connection(self) -> http.client.HTTPSConnection:
        server, authority, _ = self.access
        context = ssl.create_default_context(cadata=_pem(authority))
        place = urlsplit(server)
        assert place.hostname
        return http.client.HTTPSConnection(
            place.hostname, place.port, timeout=TIMEOUT_SECONDS, context=context
        )

    def request(
        self, method: str, path: str, body: Any = None, *, token: str | None = None
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        payload = None if body is None else json.dumps(body)
        if payload:
            headers["Content-Type"] = "application/json"
        # Also if the server does not answer: a caller that repeats the request must not leave sockets open.
        with closing(self.connection()) as connection:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            content = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(content) if is_json else content

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.err.read_text().splitlines()]


def _pem(encoded: str) -> str:
    import base64

    return base64.b64decode(encoded).decode()


@contextmanager
def held_port() -> Iterator[int]:
    """Yield a port on which a server can be started, killed and restarted, and that no other process gets meanwhile.

    On Linux a socket that is bound and does not listen reserves the port for servers with SO_REUSEADDR, as ours is.
    Elsewhere it would block our server, too, so there the port is only likely to stay free.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port


@contextmanager
def running(
    place: Path,
    *arguments: str,
    command: str = "apiserver",
    environment: Mapping[str, str] | None = None,
    umask: int = -1,
) -> Iterator[Bramley]:
    """Run a server on a free port with its data in `place`; it answers when the block begins."""
    place.mkdir(exist_ok=True)
    kubeconfig = place / "kubeconfig"
    # A kubeconfig of an earlier run does not show that the server is up, so its modification time is compared.
    before = kubeconfig.stat().st_mtime_ns if kubeconfig.exists() else 0
    given = ["--data-dir", str(place / "data"), "--listen", "127.0.0.1:0"]
    given += ["--kubeconfig-out", str(kubeconfig), *arguments]
    out, err = place / "out", place / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [BRAMLEY, command, *given],
            stdout=stdout,
            stderr=stderr,
            env=environment or clean_environment(),
            umask=umask,
        )
    server = Bramley(process, place / "data", kubeconfig, out, err)
    try:
        until(lambda: _is_up(server, before))
        yield server
    finally:
        if process.poll() is None:
            # `up` has child processes, which it ends after SIGTERM.
            process.send_signal(signal.SIGTERM if command == "up" else signal.SIGKILL)
        process.wait(TIMEOUT_SECONDS)


def _is_up(server: Bramley, before: int) -> bool:
    assert server.process.poll() is None, server.err.read_text()
    if not server.kubeconfig.exists() or server.kubeconfig.stat().st_mtime_ns == before:
        return False
    try:
        return server.request("GET", "/readyz")[0] == 200
    except OSError:
        return False


def failed_run(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that is expected to end by itself."""
    return run_program(
        [BRAMLEY, *arguments], timeout=TIMEOUT_SECONDS, env=dict(environment or clean_environment())
    )
