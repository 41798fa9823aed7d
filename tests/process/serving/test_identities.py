"""Clients authenticate with certificates of our authority or ServiceAccount tokens; other certificates are rejected."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.apiserver.auth.signing_keys import FILE
from bramley.apiserver.pki.tls import Certificates, Identity
from tests.process.serving.processes import Bramley, running
from tests.process.threaded import in_a_thread

SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
DAY = timedelta(days=1)


def written(path: Path, identity: Identity) -> Path:
    path.write_bytes(identity.certificate + identity.key.reveal().encode())
    return path


def request(server: Bramley, client: Path, method: str, path: str) -> tuple[int, Any]:
    """Send one request over a connection with the client's certificate."""
    body = json.dumps({}) if method == "POST" else None
    with closing(server.connection()) as connection:
        context: ssl.SSLContext = connection._context  # type: ignore[attr-defined]
        context.load_cert_chain(client)
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@in_a_thread
def test_a_client_certificate_of_our_authority_authenticates(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        ours = Certificates(server.folder)
        eve = ours.issue("eve", ["system:masters", "ops"], lifetime=DAY)
        admin = written(tmp_path / "eve.pem", eve)
        bob = written(tmp_path / "bob.pem", ours.issue("bob", lifetime=DAY))

        code, answer = request(server, admin, "POST", SELF)

        assert code == 201
        assert answer["status"]["userInfo"] == {
            "username": "eve",
            "groups": ["system:masters", "ops", "system:authenticated"],
        }
        assert request(server, admin, "GET", "/api/v1/nodes")[0] == 200
        code, answer = request(server, bob, "GET", "/api/v1/nodes")
        assert (code, 'User "bob" cannot list' in answer["message"]) == (403, True)


@in_a_thread
def test_other_certificates_are_rejected_by_tls(tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other")
    other.ensure()
    identity = other.issue("eve", ["system:masters"], lifetime=DAY)
    foreign = written(tmp_path / "foreign.pem", identity)
    with running(tmp_path) as server:
        tls = server.folder / "tls"
        own = tmp_path / "own.pem"
        own.write_bytes((tls / "serving.crt").read_bytes() + (tls / "serving.key").read_bytes())

        for path in (foreign, own):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
                request(server, path, "GET", "/api/v1/nodes")

        assert server.request("GET", "/readyz")[0] == 200


@in_a_thread
def test_token_is_valid_after_a_restart_and_keys_are_private(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.request("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        _, answer = server.request("POST", f"{ACCOUNTS}/robot/token", {})
        token = answer["status"]["token"]
        server.stop()
        logged = server.err.read_text()
    with running(tmp_path) as server:
        code, answer = server.request("POST", SELF, {}, token=token)

        assert code == 201
        assert answer["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"
        assert server.request("GET", "/api/v1/secrets", token=token)[0] == 403
        assert (server.folder / FILE).stat().st_mode & 0o777 == 0o600
        assert token not in logged + server.err.read_text()
