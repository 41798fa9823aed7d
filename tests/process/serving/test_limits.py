"""Slow connections do not block other clients, and no Secret is in the logs, audit log or errors of a server."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.process.serving.processes import Bramley, running, until
from tests.process.threaded import in_a_thread

SLOW = 150
# The test is repeated on a machine whose requests take longer than a slow connection lives.
TRIES = 5
BEGINNING = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nX-Slow: "
MARKER = "bWFya2VyLW9mLWEtc2VjcmV0"


def slow_connection(
    server: Bramley, context: ssl.SSLContext, *, shakes_hands: bool
) -> socket.socket:
    place = urlsplit(server.access[0])
    plain = socket.create_connection((str(place.hostname), place.port or 0), timeout=180)
    if not shakes_hands:
        return plain
    wrapped = context.wrap_socket(plain)
    wrapped.sendall(BEGINNING)
    return wrapped


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        connection.sendall(b"a")
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@contextlib.contextmanager
def slow_ones(server: Bramley) -> Iterator[socket.socket]:
    """Open many slow connections and yield the last one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as open_ones:
        for number in range(SLOW):
            last = slow_connection(server, context, shakes_hands=number % 3 > 0)
            open_ones.enter_context(contextlib.closing(last))
        yield last


def is_served_beside(slow: socket.socket, server: Bramley) -> bool:
    """Return whether requests are answered while the slow connections are still open."""
    for _ in range(10):
        assert server.request("GET", "/api/v1/namespaces")[0] == 200
    return not is_closed(slow)


@in_a_thread
def test_slow_connections_do_not_affect_others_and_are_closed(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for _ in range(TRIES):
            with slow_ones(server) as last:
                unblocked = is_served_beside(last, server)
                # It sends a byte now and then, and is closed nevertheless.
                until(lambda: is_closed(last))
            if unblocked:
                break
        assert unblocked
        assert server.request("GET", "/readyz")[0] == 200


@in_a_thread
def test_no_marker_of_a_secret_is_in_logs_audit_or_refusals(tmp_path: Path) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    with running(tmp_path, "--log-level", "debug") as server:
        until(lambda: server.request("GET", f"{accounts}/default")[0] == 200)
        body = {"metadata": {"name": "canary"}, "data": {"key": MARKER}}
        assert server.request("POST", secrets, body)[0] == 201
        refusals = [
            server.request("POST", secrets, body),
            server.request("PUT", f"{secrets}/other", body),
            server.request("POST", secrets, {**body, "type": "kubernetes.io/dockerconfigjson"}),
            server.request("POST", secrets, [MARKER]),
            server.request("GET", secrets, token=MARKER),
            server.request("DELETE", f"{secrets}/absent", {"kind": "DeleteOptions", "x": MARKER}),
        ]
        code, issued = server.request("POST", f"{accounts}/default/token", {"spec": {}})
        assert code == 201
        token, admin = issued["status"]["token"], server.token
        server.stop()

    assert all(code >= 400 for code, _ in refusals), refusals
    output = json.dumps([answer for _, answer in refusals], default=str)
    audit = (server.folder / "audit.log").read_text()
    output += audit + server.err.read_text() + server.out.read_text()
    for marker in (MARKER, token, token.split(".")[2], admin):
        assert marker not in output
    names = [json.loads(line).get("name") for line in audit.splitlines()]
    assert "canary" in names
    assert (server.folder / "audit.log").stat().st_mode & 0o777 == 0o600
