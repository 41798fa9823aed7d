"""Laws of server-side apply, for any configurations of a Service: what applying twice, in turns and by force leads to."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from bramley.apiserver.apply import fieldpath, managed_fields, merge, schema, typed
from bramley.apiserver.apply.managed_fields import Manager, VersionedSet
from bramley.apiserver.apply.merge import Applied, Conflicts, Kind

Json = dict[str, Any]

SERVICE = Kind(schema.of_struct("core/v1.Service"), "v1", has_status=True)
EMPTY: Json = {"kind": "Service", "apiVersion": "v1", "metadata": {}}
ONE, TWO = managed_fields.applier("one", ""), managed_fields.applier("two", "")

TEXTS = st.sampled_from(["x", "y", "z"])


def configurations(names: str) -> st.SearchStrategy[Json]:
    """Configurations that speak only of labels, ports and finalizers with these names."""
    keys = st.sampled_from(list(names))
    ports = st.lists(
        st.fixed_dictionaries(
            {"port": keys.map(ord)}, optional={"name": TEXTS, "targetPort": st.integers(1, 3)}
        ),
        max_size=3,
        unique_by=lambda each: str(each["port"]),
    )
    metadata = st.fixed_dictionaries(
        {},
        optional={
            "labels": st.dictionaries(keys, TEXTS, min_size=1, max_size=3),
            "finalizers": st.lists(keys, min_size=1, max_size=3, unique=True),
        },
    )
    spec = st.fixed_dictionaries({}, optional={"ports": ports})
    return st.fixed_dictionaries(
        {"kind": st.just("Service"), "apiVersion": st.just("v1"), "metadata": metadata},
        optional={"spec": spec},
    )


ANY = configurations("abc")
UPPER, LOWER = configurations("ABC"), configurations("abc")


def applied(
    live: Applied | None,
    config: Json,
    manager: Manager = ONE,
    *,
    force: bool = False,
    now: str = "1",
) -> Applied:
    before, known = (live.new, live.managers) if live else (EMPTY, {})
    return merge.apply(before, config, known, manager=manager, kind=SERVICE, force=force, now=now)


def fields(owned: dict[Manager, VersionedSet]) -> dict[Manager, fieldpath.FieldSet]:
    return {manager: each.fields for manager, each in owned.items()}


def content(value: Any) -> Any:
    """A value without order where order means nothing, and without what is empty."""
    if isinstance(value, dict):
        found = {key: content(each) for key, each in sorted(value.items())}
        return {key: each for key, each in found.items() if each not in ({}, [])}
    if isinstance(value, list):
        # Not by repr, which depends on the order of keys.
        return sorted((content(each) for each in value), key=partial(json.dumps, sort_keys=True))
    return value


@given(ANY)
def test_apply_is_idempotent(config: Json) -> None:
    once = applied(None, config)
    twice = applied(once, config, now="2")

    assert twice == once


@given(ANY, ANY)
@example(
    {**EMPTY, "spec": {"ports": [{"port": 97}]}},
    {**EMPTY, "spec": {"ports": [{"name": "x", "port": 97}, {"name": "x", "port": 98}]}},
)
def test_second_configuration_replaces_the_first(first: Json, second: Json) -> None:
    assert content(applied(applied(None, first), second).new) == content(second)


@given(UPPER, LOWER)
def test_order_of_managers_with_disjoint_fields_does_not_matter(upper: Json, lower: Json) -> None:
    one_way = applied(applied(None, upper, ONE), lower, TWO)
    other_way = applied(applied(None, lower, TWO), upper, ONE)

    assert content(one_way.new) == content(other_way.new)
    assert fields(one_way.managers) == fields(other_way.managers)


@given(UPPER, LOWER)
def test_empty_apply_leaves_fields_of_other_managers(upper: Json, lower: Json) -> None:
    both = applied(applied(None, upper, ONE), lower, TWO)

    left = applied(both, EMPTY, TWO)

    assert content(left.new) == content(upper)
    assert TWO not in left.managers


@given(ANY, ANY)
def test_force_makes_the_manager_own_every_applied_field(first: Json, second: Json) -> None:
    forced = applied(applied(None, first, ONE), second, TWO, force=True)

    own = typed.to_field_set(second, SERVICE.schema)
    again = typed.merge(forced.new, second, SERVICE.schema)
    assert typed.compare(forced.new, again, SERVICE.schema) == typed.Comparison()
    if TWO in forced.managers:
        assert not (forced.managers[TWO].fields - own)
    lost = forced.managers.get(ONE)
    assert lost is None or not (lost.fields - typed.to_field_set(first, SERVICE.schema))


@given(ANY, ANY)
def test_apply_without_force_changes_no_field_of_another_manager(first: Json, second: Json) -> None:
    before = applied(None, first, ONE)
    try:
        after = applied(before, second, TWO)
    except Conflicts:
        return
    assert fields(before.managers).items() <= fields(after.managers).items()
    assert content(typed.merge(after.new, first, SERVICE.schema)) == content(after.new)


@given(ANY, ANY)
def test_update_owns_exactly_what_it_changed(first: Json, second: Json) -> None:
    before = applied(None, first, ONE)
    new = {**second, "kind": "Service"}
    manager = managed_fields.updater("editor", "v1", "")

    after = merge.update(before.new, new, before.managers, manager=manager, kind=SERVICE, now="2")

    compared = typed.compare(before.new, new, SERVICE.schema)
    taken = compared.added | compared.modified
    for each, owned in after.items():
        if each != manager:
            assert not (owned.fields & taken)
            assert not (owned.fields & compared.removed)


@given(ANY)
def test_managed_fields_round_trip(config: Json) -> None:
    known = applied(None, config).managers

    assert managed_fields.decode(managed_fields.encode(known)) == known


def test_oldest_update_entries_are_merged_beyond_the_limit() -> None:
    known: dict[Manager, VersionedSet] = {}
    live: Json = {**EMPTY, "metadata": {"labels": {}}}
    for number in range(managed_fields.UPDATERS_LIMIT + 5):
        labels = {**live["metadata"]["labels"], f"l{number}": "x"}
        new = {**EMPTY, "metadata": {"labels": labels}}
        manager = managed_fields.updater(f"m{number}", "v1", "")
        known = merge.update(live, new, known, manager=manager, kind=SERVICE, now=f"{number:03}")
        live = new

    assert len(known) == managed_fields.UPDATERS_LIMIT
    assert managed_fields.updater("ancient-changes", "v1", "") in known
    owned = [path for each in known.values() for path in each.fields.paths()]
    assert {path[-1] for path in owned} >= {f"f:l{number}" for number in range(15)}
