from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.cluster_api import MachineDeployment, MachineSet, MachineSetStatus, TemplateMeta
from bramley.api.names import cluster_api as names
from bramley.machines.cluster_api import replicas
from tests.unit.machines.cluster_api.objects_of_a_cluster import (
    NOW,
    a_deployment,
    a_machine,
    a_set,
    a_template,
)

DELETE = {names.DELETE_MACHINE: ""}


@pytest.mark.parametrize(
    ("machines", "policy", "expected"),
    [
        pytest.param(
            [a_machine("b", ready=True), a_machine("a", ready=True)], "", ["a"], id="name"
        ),
        pytest.param(
            [a_machine("a", ready=True), a_machine("b", ready=True, annotations=DELETE)],
            *("", ["b"]),
            id="annotation",
        ),
        pytest.param(
            [a_machine("a"), a_machine("b", ready=True, annotations=DELETE)],
            *("", ["b"]),
            id="annotation before a Machine without a Node",
        ),
        pytest.param(
            [a_machine("a", ready=True), a_machine("b")], "", ["b"], id="without a healthy Node"
        ),
        pytest.param(
            [a_machine("a", ready=True), a_machine("b", ready=True, failure_reason="x")],
            *("", ["b"]),
            id="failed",
        ),
        pytest.param(
            [a_machine("a", ready=True, annotations=DELETE), a_machine("b", deleting=True)],
            *("", []),
            id="a Machine that is being deleted already is the surplus",
        ),
        pytest.param(
            [a_machine("a", ready=True, age=1), a_machine("b", ready=True, age=2)],
            *("Oldest", ["b"]),
            id="oldest",
        ),
        pytest.param(
            [a_machine("a", ready=True, age=2), a_machine("b", ready=True, age=1)],
            *("Newest", ["b"]),
            id="newest",
        ),
    ],
)
def test_scale_down_to_one_deletes(
    machines: list[object], policy: str, expected: list[str]
) -> None:
    found = replicas.to_delete(a_set("s", 1, policy=policy), machines)  # type: ignore[arg-type]

    assert [each.name for each in found] == expected


def test_missing_machines_get_the_same_names_until_one_exists() -> None:
    owner = a_set("s", 3)
    first = replicas.new_names(owner, [])

    assert replicas.new_names(owner, []) == first
    assert len(set(first)) == 3
    assert not set(first) & set(replicas.new_names(owner, [a_machine(first[0])]))
    assert replicas.new_names(owner, [a_machine(each) for each in first]) == []


def test_machine_being_deleted_is_not_replaced_yet() -> None:
    machines = [a_machine("a"), a_machine("b", deleting=True)]

    assert replicas.new_names(a_set("s", 2), machines) == []


@pytest.mark.parametrize(
    ("deployment", "sets", "kept", "sizes", "create"),
    [
        pytest.param(a_deployment(3), [], {}, {}, 3, id="first MachineSet"),
        pytest.param(a_deployment(3), [a_set("n", 1)], {}, {"n": 3}, None, id="up"),
        pytest.param(a_deployment(1), [a_set("n", 3)], {}, {"n": 1}, None, id="down"),
        pytest.param(
            a_deployment(2, template="t2"),
            *([a_set("o", 2)], {"o": 2}, {}, 0),
            id="changed template changes nothing",
        ),
        pytest.param(
            a_deployment(2, template="t2"),
            *([a_set("o", 2), a_set("n", 0, template="t2")], {"o": 1}, {"o": 1}, None),
            id="deleted Machine of the old template still occupies its host",
        ),
        pytest.param(
            a_deployment(2, template="t2"),
            *([a_set("o", 1), a_set("n", 0, template="t2")], {"o": 1}, {"n": 1}, None),
            id="replacement has the new template",
        ),
        pytest.param(
            a_deployment(3, template="t2"),
            *([a_set("o", 2), a_set("n", 0, template="t2")], {"o": 2}, {"n": 1}, None),
            id="scale-up has the new template",
        ),
        pytest.param(
            a_deployment(1, template="t2"),
            *([a_set("o", 2), a_set("n", 1, template="t2")], {"o": 2}, {"o": 0}, None),
            id="scale-down takes from the old template first",
        ),
        pytest.param(
            a_deployment(2, template="t2"),
            *([a_set("o", 1, observed=2), a_set("n", 0, template="t2")], {"o": 1}, {}, None),
            id="reduced old MachineSet is not reduced again",
        ),
    ],
)
def test_sizes_of_machine_sets(
    deployment: MachineDeployment,
    sets: list[MachineSet],
    kept: dict[str, int],
    sizes: dict[str, int],
    create: int | None,
) -> None:
    plan = replicas.plan_sets(deployment, sets, {f"uid-{key}": kept[key] for key in kept})

    assert {each.name: size for each, size in plan.sizes} == sizes
    assert plan.create == create


def test_empty_machine_set_of_an_old_template_is_deleted() -> None:
    sets = [a_set("o", 0), a_set("p", 0, observed=1), a_set("n", 0, template="t2")]

    plan = replicas.plan_sets(a_deployment(0, template="t2"), sets, {})

    assert [each.name for each in plan.delete] == ["o"]


COUNTS = st.integers(0, 5)
OLD_SETS = st.lists(st.tuples(COUNTS, COUNTS, COUNTS), max_size=3)


@given(desired=COUNTS, new=st.one_of(st.none(), COUNTS), olds=OLD_SETS)
def test_plan_never_exceeds_the_desired_count_nor_grows_an_old_set(
    desired: int, new: int | None, olds: list[tuple[int, int, int]]
) -> None:
    sets = [
        a_set(f"o{number}", spec, observed=observed, age=number + 1)
        for number, (spec, observed, _) in enumerate(olds)
    ]
    kept = {each.uid: count for each, (_, _, count) in zip(sets, olds, strict=True)}
    if new is not None:
        sets.append(a_set("n", new, template="t2"))

    plan = replicas.plan_sets(a_deployment(desired, template="t2"), sets, kept)

    after = {each.uid: each.spec.replicas for each in sets}
    after |= {each.uid: size for each, size in plan.sizes}
    assert sum(after.values()) + (plan.create or 0) <= max(desired, 0)
    assert (plan.create is None) == (new is not None)
    for each in sets:
        assert after[each.uid] >= 0
        if each.name != "n":
            assert after[each.uid] <= each.spec.replicas
    # A Machine that is kept leaves only for a scale-down.
    if sum(kept[each.uid] for each in sets if each.uid in kept) + (new or 0) <= desired:
        for each in sets:
            if each.name != "n":
                assert after[each.uid] == min(each.spec.replicas, kept[each.uid])


@given(st.integers(0, 4), st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6))
def test_set_creates_or_deletes_exactly_the_difference(
    desired: int, found: list[tuple[bool, bool]]
) -> None:
    machines = [
        a_machine(f"m{number}", ready=ready, deleting=deleting)
        for number, (ready, deleting) in enumerate(found)
    ]
    owner = a_set("s", desired)

    created, deleted = replicas.new_names(owner, machines), replicas.to_delete(owner, machines)

    assert len(created) == max(desired - len(machines), 0)
    doomed = sum(each.deleting for each in machines)
    assert len(deleted) == max(len(machines) - desired - doomed, 0)
    assert not any(each.deleting for each in deleted)


def test_template_hash_ignores_the_labels_of_its_machine_set() -> None:
    template = a_template()
    identity = {names.TEMPLATE_HASH: "x", names.DEPLOYMENT_NAME: "d"}
    labelled = replace(template, metadata=TemplateMeta(labels=identity))

    assert replicas.template_hash(labelled) == replicas.template_hash(template)
    assert replicas.template_hash(a_template("t2")) != replicas.template_hash(template)


def test_status_of_a_set_counts_machines_with_a_healthy_node() -> None:
    machines = [a_machine("a", ready=True), a_machine("b")]

    status = replicas.set_status(a_set("s", 2), machines, failure="quota", now=NOW)

    assert (status.replicas, status.ready_replicas, status.available_replicas) == (2, 1, 1)
    created = conditions.find(status.conditions, names.MACHINES_CREATED)
    assert created is not None
    assert (created.status, created.message) == ("False", "quota")


@pytest.mark.parametrize(
    ("replicas_now", "available", "phase"),
    [(2, 2, "Running"), (1, 1, "ScalingUp"), (2, 1, "ScalingUp"), (3, 2, "ScalingDown")],
)
def test_phase_of_a_deployment(replicas_now: int, available: int, phase: str) -> None:
    observed = MachineSetStatus(
        replicas=replicas_now, ready_replicas=available, available_replicas=available
    )
    sets = [replace(a_set("n", 2), status=observed)]

    status = replicas.deployment_status(a_deployment(2), sets, now=NOW)

    assert status.phase == phase
    assert (status.updated_replicas, status.unavailable_replicas) == (
        replicas_now,
        max(2 - available, 0),
    )
