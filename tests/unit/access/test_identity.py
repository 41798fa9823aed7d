from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from bramley.access import agent_objects, identity, registration
from bramley.access.registration import Registration
from bramley.api.admission import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from bramley.api.core import Namespace, Node, ServiceAccount
from bramley.api.meta import Object
from bramley.api.names import access, agent
from bramley.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from bramley.base import errors
from bramley.kube.client import Client
from tests.unit.access.embedded_api import Served, a_node, bind_pod, served

HOUR = timedelta(hours=1)
OWN: Sequence[type[Object]] = (ServiceAccount, ClusterRole, ClusterRoleBinding, Role, RoleBinding)
SHARED: Sequence[type[Object]] = (
    Namespace,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)


async def agent_objects_of(kube: Client, kinds: Sequence[type[Object]] = OWN) -> dict[str, Any]:
    """Return the objects with our label, without the fields that differ between creations."""
    found = {}
    for kind in kinds:
        for obj in (await kube.list(kind, labels=agent_objects.LABELS)).items:
            body = msgspec.to_builtins(obj)
            body["metadata"] = {
                key: body["metadata"][key]
                for key in ("labels", "annotations")
                if key in body["metadata"]
            }
            owners = [each.name for each in obj.metadata.owner_references]
            found[f"{kind.__name__} {obj.namespace}/{obj.name}"] = (body, owners)
    return found


@pytest.fixture
def server() -> AbstractAsyncContextManager[Served]:
    return served()


async def test_agent_is_a_service_account_with_roles_bindings_and_a_policy_around_it() -> None:
    async with served("ns") as server:
        await bind_pod(server.kube, "p", "mac-1", imagePullSecrets=[{"name": "pull"}])

        await identity.create(server.kube, "mac-1", expires=HOUR)

        assert set(await agent_objects_of(server.kube, (*SHARED, *OWN))) == {
            "Namespace None/bramley-agents",
            "ValidatingAdmissionPolicy None/bramley-agent-writes",
            "ValidatingAdmissionPolicyBinding None/bramley-agent-writes",
            "ClusterRole None/bramley-agent",
            "ClusterRole None/bramley-agent:mac-1",
            "ClusterRoleBinding None/bramley-agent:mac-1",
            "ClusterRoleBinding None/bramley-agent-enrolment:mac-1",
            "ServiceAccount bramley-agents/tart-kubelet-mac-1",
            *(
                f"{kind} {place}/bramley-agent:mac-1"
                for kind in ("Role", "RoleBinding")
                for place in ("bramley-agents", "kube-node-lease", "ns")
            ),
        }


async def record_of(server: Served, node: str) -> dict[str, str]:
    name = agent.service_account(node)
    found = await server.kube.get(ServiceAccount, name, namespace=access.NAMESPACE)
    return {key: text for key, text in found.metadata.annotations.items() if key != access.NODE}


async def test_labels_and_taints_of_the_node_are_recorded_and_changed(server: Served) -> None:
    first = registration.parse("zone=par-1, rack=7", "b:NoSchedule,a=1:NoExecute")
    await identity.create(server.kube, "mac-1", expires=HOUR, registration=first)
    recorded = {
        "tuist.dev/node-labels": "rack=7,zone=par-1",
        "tuist.dev/register-taints": "a=1:NoExecute,b:NoSchedule",
    }
    assert await record_of(server, "mac-1") == recorded

    # Someone who only renews the token does not know them.
    await identity.create(server.kube, "mac-1", expires=HOUR)
    assert await record_of(server, "mac-1") == recorded
    second = Registration(labels={"rack": "8"})
    await identity.create(server.kube, "mac-1", expires=HOUR, registration=second)

    assert await record_of(server, "mac-1") == {
        "tuist.dev/node-labels": "rack=8",
        "tuist.dev/register-taints": "",
    }


@pytest.mark.parametrize(
    ("labels", "taints"), [("rack", ""), ("a b=1", ""), ("", "a:Never"), ("a=b=c", "")]
)
async def test_invalid_labels_and_taints_are_refused(
    labels: str, taints: str, server: Served
) -> None:
    async def create() -> None:
        parsed = registration.parse(labels, taints)
        await identity.create(server.kube, "mac-1", expires=HOUR, registration=parsed)

    with pytest.raises(errors.BadConfiguration):
        await create()
    assert await agent_objects_of(server.kube, OWN) == {}


async def test_everything_of_an_agent_belongs_to_its_cluster_role(server: Served) -> None:
    await identity.create(server.kube, "mac-1", expires=HOUR)

    found = await agent_objects_of(server.kube)

    ownerless = {"ClusterRole None/bramley-agent", "ClusterRole None/bramley-agent:mac-1"}
    assert {name for name, (_, owners) in found.items() if not owners} == ownerless
    assert {tuple(owners) for _, owners in found.values() if owners} == {("bramley-agent:mac-1",)}


async def writes_of_a_whole_creation() -> int:
    for count in range(100):
        async with served() as server:
            try:
                await identity.create(server.cut_after(count), "mac-1", expires=HOUR)
            except errors.TimedOut:
                continue
            return count
    raise AssertionError


async def test_interrupted_creation_is_finished_by_the_next() -> None:
    async with served() as server:
        await identity.create(server.kube, "mac-1", expires=HOUR)
        whole = await agent_objects_of(server.kube, (*SHARED, *OWN))
    count = await writes_of_a_whole_creation()
    assert count > 10

    for writes in range(count):
        async with served() as server:
            with pytest.raises(errors.TimedOut):
                await identity.create(server.cut_after(writes), "mac-1", expires=HOUR)
            await identity.create(server.kube, "mac-1", expires=HOUR)

            assert await agent_objects_of(server.kube, (*SHARED, *OWN)) == whole, writes


async def test_second_creation_writes_nothing_but_a_token(server: Served) -> None:
    await identity.create(server.kube, "mac-1", expires=HOUR)

    await identity.create(server.cut_after(1), "mac-1", expires=HOUR)


async def test_interrupted_revocation_is_finished_by_the_next() -> None:
    for writes in range(20):
        async with served() as server:
            await identity.create(server.kube, "mac-1", expires=HOUR)
            try:
                await identity.revoke(server.cut_after(writes), "mac-1")
            except errors.TimedOut:
                assert await identity.revoke(server.kube, "mac-1")
                left = await agent_objects_of(server.kube)
                assert set(left) == {"ClusterRole None/bramley-agent"}, writes
            else:
                assert writes > 5
                return


async def test_revocation_deletes_the_service_account_first(server: Served) -> None:
    await a_node(server.kube, "mac-1")
    made = await identity.create(server.kube, "mac-1", expires=HOUR)

    with pytest.raises(errors.TimedOut):
        await identity.revoke(server.cut_after(1), "mac-1")

    with pytest.raises(errors.Unauthorized):
        await Client(server.api.transport(made.token)).get(Node, "mac-1")


async def test_revoking_one_agent_leaves_the_others(server: Served) -> None:
    for node in ("mac-1", "mac-10"):
        await identity.create(server.kube, node, expires=HOUR)
    other = {
        name: obj for name, obj in (await agent_objects_of(server.kube)).items() if "mac-10" in name
    }

    assert await identity.revoke(server.kube, "mac-1")

    left = await agent_objects_of(server.kube)
    assert {name for name in left if name.endswith("mac-1")} == set()
    assert {name: obj for name, obj in left.items() if "mac-10" in name} == other
    assert not await identity.revoke(server.kube, "mac-1")


async def test_token_outlives_the_node(server: Served) -> None:
    await a_node(server.kube, "mac-1")
    made = await identity.create(server.kube, "mac-1", expires=HOUR)
    await server.kube.delete(Node, "mac-1")

    await a_node(Client(server.api.transport(made.token)), "mac-1")


async def test_changed_permissions_are_restored(server: Served) -> None:
    await identity.create(server.kube, "mac-1", expires=HOUR)
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    whole = await agent_objects_of(server.kube)
    name = access.role("mac-1")
    await server.kube.merge_patch(ClusterRole, name, {"rules": rules})
    await server.kube.merge_patch(Role, name, {"rules": rules}, namespace="kube-node-lease")

    await identity.create(server.kube, "mac-1", expires=HOUR)

    assert await agent_objects_of(server.kube) == whole


@pytest.mark.parametrize("node", ["Mac", "mac_1", "", "-mac", "mac/1", "mac..1", "m" * 230])
async def test_invalid_node_name_is_refused_before_anything_is_created(
    server: Served, node: str
) -> None:
    with pytest.raises(errors.BadConfiguration, match="name"):
        await identity.create(server.cut_after(0), node, expires=HOUR)
    with pytest.raises(errors.BadConfiguration, match="name"):
        await identity.revoke(server.cut_after(0), node)


async def test_agent_with_the_longest_name_is_created(server: Served) -> None:
    node = "m" * access.MAX_NODE_LENGTH

    assert (await identity.create(server.kube, node, expires=HOUR)).node == node


async def test_too_short_token_lifetime_is_refused_before_anything_is_created(
    server: Served,
) -> None:
    with pytest.raises(errors.BadConfiguration, match="10 minutes"):
        await identity.create(server.cut_after(0), "mac-1", expires=timedelta(minutes=9))
