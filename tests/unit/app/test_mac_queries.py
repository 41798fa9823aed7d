"""What `bramley explain` and `status` read about Macs, on the embedded API."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bramley.api import cluster_api
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.cluster_api import Machine, MachineSpec
from bramley.api.core import Node, ObjectReference
from bramley.api.meta import ObjectMeta, to_wire
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.app import mac_queries
from bramley.app.pool_queries import Queries
from bramley.base.errors import BadConfiguration
from bramley.machines import objects
from tests.unit.app.test_pool_queries import queries
from tests.unit.machines.test_explanation import NOW, a_mac_host, a_machine


async def create(found: Queries) -> None:
    """Create a machine with its Machine, and a MacHost."""
    kube = found.kube
    for manifest in cluster_api.manifests():
        await kube.create_wire(CustomResourceDefinition.resource, manifest)
    reference = ObjectReference(kind=ScalewayAppleSiliconMachine.resource.kind, name="a")
    spec = MachineSpec(cluster_name="c", infrastructure_ref=reference)
    owner = await kube.create(
        Machine(metadata=ObjectMeta(name="a-owner", namespace="default"), spec=spec)
    )
    machine = a_machine()
    reference_to_owner = objects.owner_reference(owner)
    metadata = replace(machine.metadata, uid="", owner_references=[reference_to_owner])
    created = await kube.create(replace(machine, metadata=metadata))
    status = {"status": to_wire(machine)["status"]}
    await kube.merge_patch(type(created), "a", status, namespace="default", subresource="status")
    own = a_mac_host()
    await kube.create(replace(own, metadata=replace(own.metadata, uid="")))
    await kube.create(Node(metadata=ObjectMeta(name="a")))


async def test_machine_is_explained_by_its_own_name_and_that_of_its_machine() -> None:
    async with queries() as found:
        await create(found)

        by_name = await mac_queries.explain_machine(found, "a", now=NOW)
        by_owner = await mac_queries.explain_machine(found, "a-owner", now=NOW)

    assert by_name == by_owner
    assert by_name.subject == "machine default/a"
    assert by_name.waits_for == ("Cluster c, which does not exist",)
    assert "the Machine a-owner" in by_name.notes[0]


async def test_mac_host_is_explained() -> None:
    async with queries() as found:
        await create(found)

        explanation = await mac_queries.explain_mac_host(found, "own", now=NOW)

    assert explanation.subject == "machost default/own"
    assert explanation.state == "New"


async def test_unknown_machine_lists_those_that_exist() -> None:
    async with queries() as found:
        await create(found)

        with pytest.raises(BadConfiguration, match=r"machine x .* existing: default/a"):
            await mac_queries.explain_machine(found, "x", now=NOW)
        with pytest.raises(BadConfiguration, match=r"MacHost x .* existing: default/own"):
            await mac_queries.explain_mac_host(found, "x", now=NOW)


async def test_server_without_the_kinds_has_no_machines() -> None:
    async with queries(has_kind=False) as found:
        assert await mac_queries.macs(found.kube) is None
        with pytest.raises(BadConfiguration, match="bramley crds"):
            await mac_queries.explain_machine(found, "a", now=NOW)


async def test_all_macs_are_listed() -> None:
    async with queries() as found:
        await create(found)

        macs = await mac_queries.macs(found.kube)

    assert [each.name for each in macs or ()] == ["a", "own"]
