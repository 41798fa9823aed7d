"""`bramley apiserver rotate-keys` on a running server, and on the folder of a stopped one."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.process.serving.processes import (
    BRAMLEY,
    TIMEOUT_SECONDS,
    Bramley,
    clean_environment,
    running,
    until,
)
from tests.programs import run_program

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def rotate(*arguments: str, code: int = 0) -> Any:
    done = run_program(
        [BRAMLEY, "apiserver", "rotate-keys", "-o", "json", *arguments],
        timeout=TIMEOUT_SECONDS,
        env=clean_environment(),
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else [key["name"] for key in json.loads(done.stdout)["keys"]]


def minted(server: Bramley) -> str:
    until(lambda: server.request("GET", ACCOUNT)[0] == 200)
    code, made = server.request("POST", f"{ACCOUNT}/token", {"spec": {}})
    assert code == 201, made
    return str(made["status"]["token"])


def key_of(token: str) -> str:
    head = token.partition(".")[0]
    return str(json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))["kid"])


def is_valid(server: Bramley, token: str) -> bool:
    return bool(server.request("POST", SELF, {}, token=token)[0] == 201)


def test_keys_rotate_while_the_server_runs_and_while_it_is_stopped(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        place = ("--data-dir", str(server.folder))
        first = minted(server)
        keys = rotate("--kubeconfig", str(server.kubeconfig))
        second = minted(server)
        assert keys == [key_of(second), key_of(first)]
        assert is_valid(server, first)
        assert "--kubeconfig" in rotate(*place, code=2)
        server.stop()
    assert rotate(*place)[1:] == keys

    with running(tmp_path) as server:
        assert is_valid(server, first)
        assert is_valid(server, second)
        rotate("--kubeconfig", str(server.kubeconfig), "--revoke-old-keys")
        assert not is_valid(server, first)
        assert not is_valid(server, second)
