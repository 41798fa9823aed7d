"""Owners, their dependents and a Deployment across crashes: in the end no orphan is left and no dependent of an existing owner is missing."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tests.process.durability.raw_http import Access, Connection, Lost, Unsent

NAMESPACE = "families"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
REPLICA_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CHILDREN = 3
REPLICAS = 2


async def create(connection: Connection, path: str, body: Any) -> Any:
    status, answer = await connection.call("POST", path, body)
    assert status in {200, 201}, answer
    return answer


async def as_account(access: Access) -> Access:
    """Return the access of a ServiceAccount whose Role allows only ConfigMaps and Deployments."""
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"]},
    ]
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "Role", "name": "writer"}
    subject = {"kind": "ServiceAccount", "name": "writer", "namespace": "default"}
    binding = {"metadata": {"name": "writer"}, "roleRef": role, "subjects": [subject]}
    with Connection(access) as connection:
        await create(connection, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await create(connection, ACCOUNTS, {"metadata": {"name": "writer"}})
        for namespace in ("default", NAMESPACE):
            place = f"{RBAC}/namespaces/{namespace}"
            await create(
                connection, f"{place}/roles", {"metadata": {"name": "writer"}, "rules": rules}
            )
            await create(connection, f"{place}/rolebindings", binding)
        token = await create(connection, f"{ACCOUNTS}/writer/token", {"spec": {}})
    return replace(access, token=token["status"]["token"])


@dataclass
class Parent:
    """Creates owners with children and deletes some of the owners, never a child."""

    name: str
    access: Access
    # The acknowledged children by owner, without owners whose deletion was requested.
    living: dict[str, list[str]] = field(default_factory=dict)
    deleted: int = 0

    async def run(self) -> None:
        with Connection(self.access) as connection:
            for number in itertools.count():
                try:
                    await self.create_family(connection, f"{self.name}-{number}")
                    await asyncio.sleep(random.uniform(0.05, 0.3))
                except Lost:
                    continue
                except Unsent:
                    await self.access.is_up.wait()

    async def create_family(self, connection: Connection, name: str) -> None:
        owner = await create(connection, CONFIG_MAPS, {"metadata": {"name": name}})
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
        reference["uid"] = owner["metadata"]["uid"]
        children = self.living.setdefault(name, [])
        for number in range(CHILDREN):
            child = {"name": f"{name}.{number}", "ownerReferences": [reference]}
            await create(connection, CONFIG_MAPS, {"metadata": child})
            children.append(f"{name}.{number}")
        if random.random() < 0.6:
            self.living.pop(name)
            self.deleted += 1
            await connection.call("DELETE", f"{CONFIG_MAPS}/{name}")


@dataclass
class Rollout:
    """Changes one Deployment's image again and again."""

    access: Access
    rolled: int = 0

    async def run(self) -> None:
        with Connection(self.access) as connection:
            while True:
                try:
                    await self.roll(connection)
                    await asyncio.sleep(random.uniform(0.2, 0.6))
                except Lost:
                    continue
                except Unsent:
                    await self.access.is_up.wait()

    async def roll(self, connection: Connection) -> None:
        status, found = await connection.call("GET", f"{DEPLOYMENTS}/web")
        if status == 404:
            await connection.call("POST", DEPLOYMENTS, a_deployment())
            return
        found["spec"]["template"]["spec"]["containers"][0]["image"] = f"web:{self.rolled}"
        status, _ = await connection.call("PUT", f"{DEPLOYMENTS}/web", found)
        self.rolled += status == 200


def a_deployment() -> dict[str, Any]:
    labels = {"app": "web"}
    container = {"name": "web", "image": "web:first"}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def listed(connection: Connection, path: str) -> dict[str, Any]:
    status, body = await connection.call("GET", path)
    assert status == 200, body
    return {item["metadata"]["name"]: item for item in body["items"]}


async def unsettled(access: Access) -> list[str]:
    """Return the differences from the expected final state."""
    with Connection(access) as connection:
        maps = await listed(connection, CONFIG_MAPS)
        sets = await listed(connection, REPLICA_SETS)
        pods = await listed(connection, PODS)
        deployment = (await listed(connection, DEPLOYMENTS))["web"]
    uids = {item["metadata"]["uid"] for item in (*maps.values(), *sets.values(), deployment)}
    found = [
        f"{name} is an orphan"
        for name, item in {**maps, **sets, **pods}.items()
        for owner in item["metadata"].get("ownerReferences", ())
        if owner["uid"] not in uids
    ]
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    newest = [pod for pod in pods.values() if pod["spec"]["containers"][0]["image"] == image]
    if not len(pods) == len(newest) == REPLICAS:
        found.append(f"{len(newest)} of {len(pods)} Pods are of the newest template")
    return found


def missing_children(maps: dict[str, Any], parents: list[Parent]) -> list[str]:
    """Return the acknowledged children of existing owners that are missing."""
    expected = {name for each in parents for kept in each.living.values() for name in kept}
    expected |= {owner for each in parents for owner in each.living}
    return sorted(expected - maps.keys())


async def settle(access: Access, parents: list[Parent], *, seconds: float) -> None:
    """Wait until garbage collection and rollouts are done; then no child of an existing owner may be missing."""
    deadline = time.monotonic() + seconds
    left = ["not checked yet"]
    while left:
        assert time.monotonic() < deadline, left[:5]
        with suppress(Lost, Unsent):
            left = await unsettled(access)
        await asyncio.sleep(0.2)
    with Connection(access) as connection:
        assert missing_children(await listed(connection, CONFIG_MAPS), parents) == []
