"""Credentials for registries, as docker's files and Secrets hold them."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bramley.access import identity
from bramley.agent.images.credentials import Keyring, SecretForbidden
from bramley.agent.tart import references
from bramley.api.core import Secret
from bramley.api.meta import ObjectMeta, to_wire
from bramley.app import embedded
from bramley.kube.client import Client
from tests import virtual_time
from tests.unit.access.embedded_api import bind_pod, served

IMAGE = "ghcr.io/tuist/runner:1"


def entry(name: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{name}:{password}".encode()).decode()}


def config(**auths: Any) -> bytes:
    return json.dumps({"auths": auths}).encode()


async def found(
    tmp_path: Path,
    *,
    secrets: dict[str, dict[str, bytes]] | None = None,
    host: bytes | None = None,
    image: str = IMAGE,
    names: tuple[str, ...] = (),
) -> tuple[str, str] | None:
    file = tmp_path / "host.json"
    if host is not None:
        file.write_bytes(host)
    clock = virtual_time.clock()
    async with (
        embedded.running(clock=clock) as (api, token),
        Client(api.transport(token), clock=clock) as kube,
    ):
        for name, data in (secrets or {}).items():
            secret = Secret(metadata=ObjectMeta(name=name, namespace="default"), data=data)
            await kube.create_wire(Secret.resource, to_wire(secret), namespace="default")
        reference = references.parse(image)
        assert reference is not None
        keyring = Keyring(kube, file if host is not None else None)
        credentials = await keyring.find(reference, namespace="default", secrets=names)
    return (credentials.username, credentials.password.reveal()) if credentials else None


DOCKER = ".dockerconfigjson"


async def test_pods_secrets_come_before_the_hosts_file(tmp_path: Path) -> None:
    secrets = {"one": {DOCKER: config(**{"ghcr.io": entry("pod", "p:w")})}}
    host = config(**{"ghcr.io": entry("host", "h")})

    assert await found(tmp_path, secrets=secrets, host=host, names=("one",)) == ("pod", "p:w")
    assert await found(tmp_path, secrets=secrets, host=host) == ("host", "h")


async def test_secret_for_another_registry_is_ignored(tmp_path: Path) -> None:
    secrets = {
        "other": {DOCKER: config(**{"quay.io": entry("q", "q")})},
        "ours": {DOCKER: config(**{"https://ghcr.io/v2/": {"username": "u", "password": "w"}})},
    }

    assert await found(tmp_path, secrets=secrets, names=("other", "ours")) == ("u", "w")


@pytest.mark.parametrize(
    ("keys", "image", "expected"),
    [
        (("ghcr.io", "ghcr.io/tuist"), IMAGE, "ghcr.io/tuist"),
        (("ghcr.io", "ghcr.io/tui"), IMAGE, "ghcr.io"),
        (("*.example.com",), "eu.example.com/a/b:1", "*.example.com"),
        (("*.com",), "eu.example.com/a/b:1", None),
        (("localhost:5000",), "localhost:5000/a/b:1", "localhost:5000"),
        (("localhost",), "localhost:5000/a/b:1", None),
    ],
)
async def test_longest_matching_key_wins(
    tmp_path: Path, keys: tuple[str, ...], image: str, expected: str | None
) -> None:
    host = config(**{key: entry("u", key) for key in keys})
    credentials = await found(tmp_path, host=host, image=image)

    assert (credentials[1] if credentials else None) == expected


async def test_old_format_of_secrets_is_read(tmp_path: Path) -> None:
    secrets = {"old": {".dockercfg": json.dumps({"ghcr.io": entry("u", "w")}).encode()}}

    assert await found(tmp_path, secrets=secrets, names=("old",)) == ("u", "w")


@pytest.mark.parametrize(
    "data",
    [
        {DOCKER: b"hunter2"},
        {DOCKER: config(**{"ghcr.io": {"auth": "%%%"}})},
        {DOCKER: config(**{"ghcr.io": {"auth": base64.b64encode(b"nameless").decode()}})},
        {DOCKER: config(**{"ghcr.io": {"auth": "hunter2ü"}})},
        {DOCKER: b'{"hunter2": ' + b"[" * 30_000 + b"]" * 30_000 + b"}"},
        {"unrelated": b"x"},
    ],
)
async def test_unusable_secret_is_ignored_and_not_logged(
    tmp_path: Path, data: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    assert await found(tmp_path, secrets={"bad": data}, names=("bad", "missing")) is None
    assert "hunter2" not in caplog.text


async def test_secret_that_no_pod_of_the_host_refers_to_is_an_error_that_says_what_to_do(
    tmp_path: Path,
) -> None:
    file, own = tmp_path / "host.json", {DOCKER: config(**{"ghcr.io": entry("pod", "w")})}
    reference = references.parse(IMAGE)
    assert reference is not None
    async with served("ns") as server:
        secret = Secret(metadata=ObjectMeta(name="pull", namespace="ns"), data=own)
        await server.kube.create_wire(Secret.resource, to_wire(secret), namespace="ns")
        made = await identity.create(server.kube, "mac-1", expires=timedelta(hours=1))
        kube = Client(server.api.transport(made.token), clock=virtual_time.clock())

        async def find() -> str | None:
            found = await Keyring(kube, file).find(reference, namespace="ns", secrets=("pull",))
            return found.username if found else None

        with pytest.raises(SecretForbidden, match=r"Secret ns/pull.*registryCredentialsFile"):
            await find()
        file.write_bytes(config(**{"ghcr.io": entry("host", "h")}))
        assert await find() == "host"
        await bind_pod(server.kube, "p", "mac-1", imagePullSecrets=[{"name": "pull"}])
        assert await find() == "pod"


async def test_replaced_host_file_is_used_by_the_next_pull(tmp_path: Path) -> None:
    """The bootstrap replaces the file and does not restart the agent."""
    file = tmp_path / "host.json"
    async with Client(_UnusedTransport()) as kube:  # type: ignore[arg-type]
        reference = references.parse(IMAGE)
        assert reference is not None
        keyring = Keyring(kube, file)
        passwords = []
        for password in ("before", "after"):
            file.write_bytes(config(**{"ghcr.io": entry("host", password)}))
            credentials = await keyring.find(reference, namespace="", secrets=())
            assert credentials is not None
            passwords.append(credentials.password.reveal())

    assert passwords == ["before", "after"]


async def test_unreadable_host_file_is_ignored(tmp_path: Path) -> None:
    assert await found(tmp_path, host=b"{") is None
    (tmp_path / "host.json").unlink()
    (tmp_path / "host.json").mkdir()
    async with Client(_UnusedTransport()) as kube:  # type: ignore[arg-type]
        reference = references.parse(IMAGE)
        assert reference is not None
        keyring = Keyring(kube, tmp_path / "host.json")
        assert await keyring.find(reference, namespace="", secrets=()) is None


class _UnusedTransport:
    async def close(self) -> None: ...
