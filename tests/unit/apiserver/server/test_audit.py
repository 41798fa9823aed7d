"""The audit log records who did what, in bounded files, and never the content of objects."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from bramley.apiserver.admin.backups import PATH, Backups
from bramley.apiserver.admin.endpoints import ROTATE_KEYS_PATH as ROTATE
from bramley.apiserver.auth.bearer_tokens import ADMIN, ADMIN_GROUPS, Tokens
from bramley.apiserver.auth.signing_keys import SigningKeys
from bramley.apiserver.server.audit import AuditLog, Settings
from bramley.apiserver.store.store import Store
from bramley.app import embedded
from bramley.kube.transport import Request, Response
from tests import virtual_time

SECRETS = "/api/v1/namespaces/default/secrets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
MERGE = "application/merge-patch+json"


class Audited:
    """An API in memory with an audit log."""

    def __init__(self, store: Store, log: AuditLog, folder: Path) -> None:
        tokens, clock = Tokens.in_memory(), virtual_time.clock()
        self._token = tokens.issue(ADMIN, ADMIN_GROUPS)
        backups = Backups(store, folder=folder, kubeconfig=folder / "kubeconfig", clock=clock)
        self._api = embedded.build(
            store,
            tokens,
            clock=clock,
            rng=random.Random(1),
            audit=log,
            backups=backups,
            keys=SigningKeys.open(folder / "keys", clock=clock),
        ).api

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Response:
        request = Request(
            method,
            path,
            body=None if body is None else json.dumps(body).encode(),
            content_type=kind if body is not None else None,
            headers=headers,
        )
        return await self._api.transport(self._token).send(request)


@asynccontextmanager
async def audited(path: Path, settings: Settings | None = None) -> AsyncIterator[Audited]:
    clock = virtual_time.clock()
    async with Store.in_memory(clock=clock) as store:
        log = AuditLog(path, clock=clock, settings=settings)
        log.record_start(store.revision)
        yield Audited(store, log, path.parent)
        log.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def sizes_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


async def test_only_writes_and_privileged_reads_are_logged(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(path) as api:
        await api.request("POST", CONFIG_MAPS, {"metadata": {"name": "x"}})
        await api.request("GET", f"{CONFIG_MAPS}/x")
        await api.request("GET", SECRETS)
        await api.request("DELETE", f"{CONFIG_MAPS}/absent")
        await api.request("GET", f"{CONFIG_MAPS}/x", headers=(("Impersonate-User", "jane"),))

    started, *entries = lines(path)
    assert started["started"]
    assert [
        (line["verb"], line["resource"], line.get("name"), line["code"], line["user"])
        for line in entries
    ] == [
        ("create", "configmaps", "x", 201, "admin"),
        ("list", "secrets", None, 200, "admin"),
        ("delete", "configmaps", "absent", 404, "admin"),
        ("get", "configmaps", "x", 403, "jane"),
    ]
    assert entries[3]["impersonatedBy"] == "admin"
    assert len(entries[0]["sha256"]) == 64
    assert int(entries[0]["resourceVersion"]) > 0
    assert len({line["id"] for line in entries}) == 4
    # Only who comes over a socket has an address.
    assert not any("source" in line for line in entries)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_no_marker_of_a_secret_gets_into_the_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    marker = "c2VjcmV0LW1hcmtlcg=="
    async with audited(path) as api:
        secret = {"metadata": {"name": "s"}, "data": {"k": marker}}
        made = await api.request("POST", SECRETS, secret)
        assert made.status == 201
        await api.request("PATCH", f"{SECRETS}/s", {"data": {"k2": marker}}, kind=MERGE)
        account = {"metadata": {"name": "a"}}
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await api.request("POST", accounts, account)
        token = await api.request("POST", f"{accounts}/a/token", {"spec": {}})
        issued = json.loads(token.body)["status"]["token"]

    content = path.read_text()
    assert marker not in content
    assert issued not in content
    assert issued.split(".")[2] not in content
    of_secrets = [line for line in lines(path) if line.get("resource") == "secrets"]
    assert [line["verb"] for line in of_secrets] == ["create", "patch"]
    # Nor can it be guessed from a digest.
    assert all("sha256" not in line for line in of_secrets)


async def test_heartbeats_do_not_fill_the_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(path) as api:
        await api.request("POST", LEASES, {"metadata": {"name": "l"}})
        for number in range(3):
            patch = {"spec": {"leaseTransitions": number}}
            await api.request("PATCH", f"{LEASES}/l", patch, kind=MERGE)
        await api.request("DELETE", f"{LEASES}/l")

    assert [line["verb"] for line in lines(path)[1:]] == ["create", "delete"]


async def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = Settings(file_bytes=2000, files=3, flush_interval=timedelta(seconds=0.01))
    async with audited(path, settings) as api:
        for number in range(60):
            await api.request("POST", CONFIG_MAPS, {"metadata": {"name": f"x-{number}"}})
            await asyncio.sleep(0.1)

    sizes = sizes_in(tmp_path)
    assert sorted(sizes) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert max(sizes.values()) <= 2000
    newest = [int(line["resourceVersion"]) for line in lines(path)]
    assert newest == sorted(newest)
    assert newest[0] > int(lines(tmp_path / "audit.log.1")[-1]["resourceVersion"])


async def test_lines_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(path, Settings(queue_limit=2)) as api:
        for number in range(5):
            await api.request("POST", CONFIG_MAPS, {"metadata": {"name": f"x-{number}"}})

    assert sum(line.get("lost", 0) for line in lines(path)) == 3


async def test_refused_backups_are_logged(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(path) as api:
        acting = (("impersonate-user", "bob"),)
        assert (await api.request("GET", PATH, headers=acting)).status == 403
        assert (await api.request("POST", PATH)).status == 405

    entries = [each for each in lines(path) if each.get("path") == PATH]
    assert [(each["user"], each["verb"], each["code"]) for each in entries] == [
        ("bob", "get", 403),
        (ADMIN, "post", 405),
    ]
    assert entries[0]["impersonatedBy"] == ADMIN


async def test_key_rotations_are_logged_with_every_result(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with audited(path) as api:
        acting = (("impersonate-user", "bob"),)
        assert (await api.request("POST", ROTATE, headers=acting)).status == 403
        assert (await api.request("GET", ROTATE)).status == 405
        assert (await api.request("POST", ROTATE)).status == 200
        shutil.rmtree(tmp_path / "keys")
        (tmp_path / "keys").touch()
        failed = await api.request("POST", ROTATE)

    entries = [each for each in lines(path) if each.get("path") == ROTATE]
    assert [(each["user"], each["code"]) for each in entries] == [
        ("bob", 403),
        (ADMIN, 405),
        (ADMIN, 200),
        (ADMIN, 507),
    ]
    assert b"the keys cannot be rotated: " in failed.body
