"""A dispatch endpoint that supports only the short poll: 200 with a job, 204, 401 and 410. A test may choose other answers.

It is a real HTTP server in a thread (`serve`), and the callable of guests under virtual time (`answer`). It records each request.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from bramley.api.names.dispatch import DISPATCH_PATH
from bramley.sim.tart.effects import HttpAnswer

# Status, body and perhaps headers.
Answer = tuple[int, bytes] | tuple[int, bytes, Mapping[str, str]]
NOTHING: Answer = (204, b"")
UNAUTHORIZED: Answer = (401, b'{"error":"unauthorized"}')
DRAIN: Answer = (410, b'{"error":"drain","reason":"image stale"}')


class ConnectionLost(ConnectionResetError):
    """The peer closes the connection instead of answering; raised by `on_request`."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request: its headers by lower-case name, its token, the Pod that this identifies, and when it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float
    token: str
    pod: str | None


def job(configuration: str) -> Answer:
    """Return the answer that hands out a runner's configuration."""
    content = {"encoded_jit_config": configuration, "owner": "acme", "workflow_job_id": 1}
    return 200, json.dumps(content).encode()


def pod_of_token(token: str) -> str | None:
    """Return the Pod that a ServiceAccount token is bound to; its signature is not verified."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return str(claims["kubernetes.io"]["pod"]["name"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return None


@dataclass
class DispatchPeer:
    """The endpoint; its fields may change at any time."""

    # Returns the Pod of a token, None for a token that is refused.
    authenticate: Callable[[str], str | None] = pod_of_token
    is_drained: Callable[[str], bool] = lambda _: False
    now: Callable[[], float] = time.time
    # Runs before the answer to an authenticated or refused request is chosen; may return another answer or raise ConnectionLost.
    on_request: Callable[[Received], Answer | None] = lambda _: None
    # Status by Pod, instead of the regular answer.
    answers: dict[str, int] = field(default_factory=dict)
    # Configurations for the next poll of a Pod; each is handed out once.
    jobs: dict[str, str] = field(default_factory=dict)
    requests: list[Received] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def polls_of(self, pod: str) -> list[Received]:
        """Return the requests of a Pod so far."""
        with self._lock:
            return [each for each in self.requests if each.pod == pod]

    def answer(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Record a request and return its answer."""
        lower = {name.lower(): value for name, value in headers.items()}
        token = lower.get("authorization", "").removeprefix("Bearer ")
        with self._lock:
            pod = self.authenticate(token) if token else None
            path = urlsplit(url).path
            received = Received(method, path, lower, body, self.now(), token, pod)
            self.requests.append(received)
            return self.on_request(received) or self._choose(received)

    def _choose(self, received: Received) -> Answer:
        if (received.method, received.path) != ("POST", DISPATCH_PATH):
            return 404, b""
        pod = received.pod
        if pod is None:
            return UNAUTHORIZED
        if pod in self.answers:
            return self.answers[pod], b""
        if self.is_drained(pod):
            return DRAIN
        if pod in self.jobs:
            return job(self.jobs.pop(pod))
        return NOTHING

    @contextlib.contextmanager
    def serve(self, port: int = 0) -> Iterator[str]:
        """Serve on the loopback address; yield the URL of the endpoint."""
        server = _Server(("127.0.0.1", port), _Handler)
        server.peer = self
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{DISPATCH_PATH}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Server(ThreadingHTTPServer):
    peer: DispatchPeer


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = dict(self.headers.items())
        try:
            answer = HttpAnswer(*self.server.peer.answer(self.command, self.path, headers, body))
        except ConnectionLost:
            self.close_connection = True
            return
        # A guest that is powered off does not wait for its answer.
        with contextlib.suppress(ConnectionError):
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
