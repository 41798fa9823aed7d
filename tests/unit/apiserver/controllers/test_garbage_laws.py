"""The laws of garbage collection, for any graph of owners: an object with an existing owner stays, one without is deleted."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bramley.api.core import ConfigMap
from bramley.api.meta import OwnerReference, Resource
from bramley.apiserver.controllers.discovery import (
    Discovery,
    PartialMeta,
    PartialObject,
    PartialTypes,
)
from bramley.apiserver.controllers.garbage import collector
from bramley.apiserver.controllers.garbage.collector import (
    Decision,
    Delete,
    DropOwners,
    Keep,
    OwnerState,
)
from bramley.apiserver.controllers.garbage.graph_builder import (
    FOREGROUND,
    ORPHAN,
    GraphBuilder,
    OwnerGraph,
)
from bramley.base import errors
from tests import virtual_time
from tests.unit import example_counts
from tests.unit.apiserver.controllers.cluster_world import (
    a_cluster,
    a_config_map,
    owned_by,
    settled,
)

MAPS = Resource("", "v1", "ConfigMap", "configmaps", namespaced=True)
Propagation = Literal["Background", "Foreground"]
# For each object the numbers of its owners, all of them made before it; and which objects are deleted, and how.
families = st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=8)
deaths = st.dictionaries(
    st.integers(0, 7), st.sampled_from(["Background", "Foreground"]), max_size=3
)


def survivors(owners: list[set[int]], dead: set[int]) -> set[int]:
    """Return which objects the rules alone leave, in the order of their creation."""
    alive: set[int] = set()
    for number, mine in enumerate(owners):
        if number not in dead and (not mine or mine & alive):
            alive.add(number)
    return alive


@settings(max_examples=example_counts.examples(8))
@given(family=families, killed=deaths)
def test_objects_with_an_existing_owner_or_none_stay(
    family: list[list[int]], killed: dict[int, Propagation]
) -> None:
    owners = [{each for each in mine if each < number} for number, mine in enumerate(family)]

    async def live() -> set[str]:
        async with a_cluster() as client:
            made: list[ConfigMap] = []
            for number, mine in enumerate(owners):
                refs = [owned_by(made[each], block=True) for each in sorted(mine)]
                made.append(await client.create(a_config_map(f"m{number}", *refs)))
            await settled()
            for number, how in killed.items():
                if number < len(made):
                    await client.delete(
                        ConfigMap,
                        f"m{number}",
                        namespace="t",
                        uid=made[number].uid,
                        propagation=how,
                    )
            await settled(5)
            found = (await client.list(ConfigMap, namespace="t")).items
            return {each.name for each in found} - {"kube-root-ca.crt"}

    left = virtual_time.run(live())

    assert left == {f"m{number}" for number in survivors(owners, set(killed))}


def an_object(*finalizers: str) -> PartialObject:
    return PartialTypes().of(MAPS)(
        metadata=PartialMeta(name="a", uid="a", finalizers=list(finalizers))
    )


@pytest.mark.parametrize(
    ("owners", "item", "expected"),
    [
        ({}, an_object(), Keep()),
        ({"o": OwnerState.SOLID}, an_object(), Keep()),
        (
            {"o": OwnerState.SOLID, "p": OwnerState.ABSENT},
            an_object(),
            DropOwners(frozenset({"p"})),
        ),
        (
            {"o": OwnerState.SOLID, "p": OwnerState.WAITING_FOR_DEPENDENTS},
            an_object(),
            DropOwners(frozenset({"p"})),
        ),
        ({"o": OwnerState.ABSENT}, an_object(), Delete("Background")),
        ({"o": OwnerState.WAITING_FOR_DEPENDENTS}, an_object(), Delete("Background")),
        ({"o": OwnerState.ABSENT}, an_object(ORPHAN), Delete("Orphan")),
        ({"o": OwnerState.ABSENT}, an_object(FOREGROUND), Delete("Foreground")),
    ],
)
def test_decision_for_an_object_without_dependents(
    owners: dict[str, OwnerState], item: PartialObject, expected: Decision
) -> None:
    assert collector.decide(item, owners, []) == expected


def test_object_with_a_waiting_owner_is_deleted_after_its_own_dependents() -> None:
    decision = collector.decide(
        an_object(), {"o": OwnerState.WAITING_FOR_DEPENDENTS}, [an_object()]
    )

    assert decision == Delete("Foreground")


def test_removing_an_object_enqueues_only_its_dependents() -> None:
    kind, graph = PartialTypes().of(MAPS), OwnerGraph()
    ref = OwnerReference(api_version="v1", kind="ConfigMap", name="o", uid="o")
    graph.update(kind(metadata=PartialMeta(name="o", uid="o", namespace="t")))
    graph.update(
        kind(metadata=PartialMeta(name="c", uid="c", namespace="t", owner_references=[ref]))
    )
    graph.update(kind(metadata=PartialMeta(name="x", uid="x", namespace="t")))

    assert list(graph.remove("o").attempt_to_delete) == ["c"]
    assert list(graph.remove("x").attempt_to_delete) == []


def test_object_with_an_unknown_owner_is_enqueued() -> None:
    kind, graph = PartialTypes().of(MAPS), OwnerGraph()
    ref = OwnerReference(api_version="v1", kind="ConfigMap", name="o", uid="o")

    work = graph.update(
        kind(metadata=PartialMeta(name="c", uid="c", namespace="t", owner_references=[ref]))
    )

    assert list(work.attempt_to_delete) == ["c"]


def test_an_owner_of_an_unserved_kind_is_unknown_and_not_absent() -> None:
    builder = GraphBuilder.__new__(GraphBuilder)
    builder.discovery, builder._discovery_needed = Discovery(), asyncio.Event()

    with pytest.raises(errors.Unavailable):
        builder.resource_of("example.com/v1", "Gadget")
