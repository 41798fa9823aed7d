"""The laws of garbage collection, for any graph of owners: whoever has a living owner stays, whoever has none left goes."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bramley.api.core import ConfigMap
from bramley.api.meta import OwnerReference, Resource
from bramley.apiserver.controllers.discovery import Discovery, Kinds, Thin, ThinMeta
from bramley.apiserver.controllers.garbage import deciding
from bramley.apiserver.controllers.garbage.deciding import Delete, DropOwners, Owner, Stay, Verdict
from bramley.apiserver.controllers.garbage.following import Following
from bramley.apiserver.controllers.garbage.graph import FOREGROUND, ORPHAN, Graph
from bramley.base import errors, virtual_time
from tests.unit import sampling
from tests.unit.apiserver.controllers.a_cluster import a_cluster, a_config_map, owned_by, settled

MAPS = Resource("", "v1", "ConfigMap", "configmaps", namespaced=True)
Propagation = Literal["Background", "Foreground"]
# For each object the numbers of its owners, all of them made before it; and which objects are deleted, and how.
families = st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=8)
deaths = st.dictionaries(
    st.integers(0, 7), st.sampled_from(["Background", "Foreground"]), max_size=3
)


def survivors(owners: list[set[int]], dead: set[int]) -> set[int]:
    """Say by the law alone who is left: a plain reading, in the order in which the objects were made."""
    alive: set[int] = set()
    for number, mine in enumerate(owners):
        if number not in dead and (not mine or mine & alive):
            alive.add(number)
    return alive


@settings(max_examples=sampling.examples(8))
@given(family=families, killed=deaths)
def test_exactly_those_stay_that_have_a_living_owner_or_never_had_one(
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


def a_thing(*finalizers: str) -> Thin:
    return Kinds().of(MAPS)(metadata=ThinMeta(name="a", uid="a", finalizers=list(finalizers)))


@pytest.mark.parametrize(
    ("owners", "thing", "expected"),
    [
        ({}, a_thing(), Stay()),
        ({"o": Owner.SOLID}, a_thing(), Stay()),
        ({"o": Owner.SOLID, "p": Owner.ABSENT}, a_thing(), DropOwners(frozenset({"p"}))),
        ({"o": Owner.SOLID, "p": Owner.WAITING}, a_thing(), DropOwners(frozenset({"p"}))),
        ({"o": Owner.ABSENT}, a_thing(), Delete("Background")),
        ({"o": Owner.WAITING}, a_thing(), Delete("Background")),
        ({"o": Owner.ABSENT}, a_thing(ORPHAN), Delete("Orphan")),
        ({"o": Owner.ABSENT}, a_thing(FOREGROUND), Delete("Foreground")),
    ],
)
def test_the_verdict_on_an_object_without_dependents(
    owners: dict[str, Owner], thing: Thin, expected: Verdict
) -> None:
    assert deciding.decide(thing, owners, []) == expected


def test_an_object_whose_owner_waits_goes_after_its_own_dependents() -> None:
    verdict = deciding.decide(a_thing(), {"o": Owner.WAITING}, [a_thing()])

    assert verdict == Delete("Foreground")


def test_removing_an_object_wakes_its_dependents_and_nobody_else() -> None:
    kind, graph = Kinds().of(MAPS), Graph()
    ref = OwnerReference(api_version="v1", kind="ConfigMap", name="o", uid="o")
    graph.put(kind(metadata=ThinMeta(name="o", uid="o", namespace="t")))
    graph.put(kind(metadata=ThinMeta(name="c", uid="c", namespace="t", owner_references=[ref])))
    graph.put(kind(metadata=ThinMeta(name="x", uid="x", namespace="t")))

    assert list(graph.remove("o").look) == ["c"]
    assert list(graph.remove("x").look) == []


def test_an_object_whose_owner_is_unknown_is_looked_at() -> None:
    kind, graph = Kinds().of(MAPS), Graph()
    ref = OwnerReference(api_version="v1", kind="ConfigMap", name="o", uid="o")

    wakes = graph.put(
        kind(metadata=ThinMeta(name="c", uid="c", namespace="t", owner_references=[ref]))
    )

    assert list(wakes.look) == ["c"]


def test_an_owner_of_an_unserved_kind_is_unknown_and_not_absent() -> None:
    nobody = Following.__new__(Following)
    nobody.found, nobody._stirred = Discovery(), asyncio.Event()

    with pytest.raises(errors.Unavailable):
        nobody.resource_of("example.com/v1", "Gadget")
