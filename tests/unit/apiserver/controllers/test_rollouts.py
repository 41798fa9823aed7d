"""The arithmetic of rollouts: a simulated world of Pods never has too many, never too few by our doing, and always ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.apps import (
    Deployment,
    DeploymentSpec,
    DeploymentStrategy,
    IntOrPercent,
    ReplicaSet,
    ReplicaSetSpec,
    ReplicaSetStatus,
    RollingUpdate,
)
from bramley.api.meta import ObjectMeta
from bramley.apiserver.controllers.deployments import replica_counts, revisions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_deployment(
    replicas: int, surge: IntOrPercent = "25%", unavailable: IntOrPercent = "25%"
) -> Deployment:
    rolling = RollingUpdate(max_surge=surge, max_unavailable=unavailable)
    strategy = DeploymentStrategy(type="RollingUpdate", rolling_update=rolling)
    return Deployment(
        metadata=ObjectMeta(name="d"), spec=DeploymentSpec(replicas=replicas, strategy=strategy)
    )


def a_set(name: str, replicas: int, available: int = 0, age: int = 0, **marks: str) -> ReplicaSet:
    meta = ObjectMeta(
        name=name,
        uid=name,
        creation_timestamp=NOW - timedelta(minutes=age),
        annotations={
            replica_counts.DESIRED: marks.get("desired", ""),
            replica_counts.MAX: marks.get("max", ""),
        },
    )
    return ReplicaSet(
        metadata=meta,
        spec=ReplicaSetSpec(replicas=replicas),
        status=ReplicaSetStatus(replicas=replicas, available_replicas=available),
    )


def sizes(steps: list[replica_counts.Scale]) -> dict[str, int]:
    return {step.owner.name: step.replicas for step in steps}


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", (3, 2)),
        (4, "25%", "25%", (1, 1)),
        (1, "25%", "25%", (1, 0)),
        (3, 0, "10%", (0, 1)),
        (0, "25%", "25%", (0, 1)),
        (3, 2, 0, (2, 0)),
        (5, "100%", "100%", (5, 5)),
    ],
)
def test_percentages_are_rounded_up_for_surge_and_down_for_unavailable(
    replicas: int, surge: IntOrPercent, unavailable: IntOrPercent, expected: tuple[int, int]
) -> None:
    assert replica_counts.fenceposts(a_deployment(replicas, surge, unavailable)) == expected


@pytest.mark.parametrize(
    ("new", "olds", "expected"),
    [
        # First the new one grows into the room that surge gives.
        (a_set("new", 0), [a_set("old", 10, 10)], {"new": 3}),
        # Then as many old ones go as may be missing; those that are not available yet do not count.
        (a_set("new", 3, 0), [a_set("old", 10, 10)], {"old": 8}),
        (a_set("new", 3, 3), [a_set("old", 8, 8)], {"new": 5}),
        (a_set("new", 5, 3), [a_set("old", 8, 8)], {"old": 5}),
        # Unhealthy old ones are scaled down first, from the oldest.
        (a_set("new", 3, 0), [a_set("b", 5, 5, 1), a_set("a", 5, 3, 2)], {"a": 3}),
        # Nothing is left to do, or nothing may be done now.
        (a_set("new", 10, 10), [a_set("old", 0, 0)], {}),
        (a_set("new", 5, 0), [a_set("old", 8, 8)], {}),
        (a_set("new", 5, 0), [a_set("old", 8, 6)], {}),
        (a_set("new", 12, 12), [], {"new": 10}),
    ],
)
def test_the_next_step_of_a_rolling_update(
    new: ReplicaSet, olds: list[ReplicaSet], expected: dict[str, int]
) -> None:
    assert sizes(replica_counts.roll(a_deployment(10), new, olds)) == expected


@pytest.mark.parametrize(
    ("desired", "new", "olds", "expected"),
    [
        (5, a_set("new", 3, 3, desired="3"), [], {"new": 5}),
        (5, a_set("new", 0), [a_set("old", 3, 3, desired="3")], {"old": 5}),
        (5, None, [a_set("older", 0, age=2), a_set("old", 0, age=1)], {"old": 5}),
        (3, a_set("new", 3, 3, desired="3"), [a_set("old", 2, 2)], {"old": 0}),
        # 10 + 3 become 20 + 5: each grows by its share, and what is left goes to the largest.
        (
            20,
            a_set("new", 5, 2, desired="10", max="13"),
            [a_set("old", 8, 8, desired="10", max="13")],
            {"old": 15, "new": 10},
        ),
        (
            0,
            a_set("new", 5, 2, desired="10", max="13"),
            [a_set("old", 8, 8, desired="10", max="13")],
            {"old": 0, "new": 0},
        ),
    ],
)
def test_scaling_is_proportional_to_size(
    desired: int, new: ReplicaSet | None, olds: list[ReplicaSet], expected: dict[str, int]
) -> None:
    assert sizes(replica_counts.rescale(a_deployment(desired), new, olds)) == expected


class World:
    """ReplicaSets whose Pods appear, disappear and become available at random."""

    def __init__(self, deployment: Deployment, olds: list[int]) -> None:
        self.deployment = deployment
        self.sets = {
            f"old{number}": a_set(f"old{number}", size, size, age=number + 1)
            for number, size in enumerate(olds)
        }
        self.sets["new"] = a_set("new", 0)

    def step(self) -> bool:
        olds = [each for name, each in self.sets.items() if name != "new"]
        steps = replica_counts.roll(self.deployment, self.sets["new"], olds)
        for step in steps:
            self._resize(step.owner.name, step.replicas)
        return bool(steps)

    def _resize(self, name: str, replicas: int) -> None:
        old = self.sets[name]
        spec = msgspec.structs.replace(old.spec, replicas=replicas)
        # Pods that go are the unavailable ones first, as ranking promises.
        available = min(old.status.available_replicas, replicas)
        status = msgspec.structs.replace(old.status, available_replicas=available)
        self.sets[name] = msgspec.structs.replace(old, spec=spec, status=status)

    def become(self, name: str, available: int) -> None:
        old = self.sets[name]
        bounded = min(available, old.spec.replicas)
        status = msgspec.structs.replace(old.status, available_replicas=bounded)
        self.sets[name] = msgspec.structs.replace(old, status=status)

    @property
    def total(self) -> int:
        return sum(each.spec.replicas for each in self.sets.values())

    @property
    def available(self) -> int:
        return sum(each.status.available_replicas for each in self.sets.values())


amount = st.one_of(st.integers(0, 5), st.integers(0, 100).map(lambda part: f"{part}%"))


@given(
    replicas=st.integers(1, 20),
    surge=amount,
    unavailable=amount,
    split=st.lists(st.integers(0, 20), max_size=3),
    rng=st.randoms(use_true_random=False),
)
def test_a_rollout_keeps_its_bounds_and_ends(
    replicas: int, surge: IntOrPercent, unavailable: IntOrPercent, split: list[int], rng: object
) -> None:
    deployment = a_deployment(replicas, surge, unavailable)
    olds = [replicas, *[0 for _ in split]]
    world = World(deployment, olds)
    most = replicas + replica_counts.max_surge(deployment)
    least = replicas - replica_counts.max_unavailable(deployment)

    for _ in range(40 * replicas + 40):
        world.step()
        assert world.total <= max(most, replicas)
        assert world.available >= least
        new = world.sets["new"]
        grown = rng.randint(new.status.available_replicas, new.spec.replicas)  # type: ignore[attr-defined]
        world.become("new", grown)

    world.become("new", world.sets["new"].spec.replicas)
    while world.step():
        world.become("new", world.sets["new"].spec.replicas)
    assert {
        name: each.spec.replicas for name, each in world.sets.items() if each.spec.replicas
    } == {"new": replicas}


@given(desired=st.integers(0, 30), before=st.integers(1, 30), part=st.integers(0, 30), surge=amount)
def test_scaling_in_the_middle_of_a_rollout_stays_within_the_new_size_and_surge(
    desired: int, before: int, part: int, surge: IntOrPercent
) -> None:
    part = min(part, before)
    deployment = a_deployment(desired, surge, 1)
    most = str(before + replica_counts.max_surge(a_deployment(before, surge, 1)))
    new = a_set("new", part, 0, desired=str(before), max=most)
    old = a_set("old", before - part, before - part, 1, desired=str(before), max=most)

    after = {"new": part, "old": before - part}
    after |= sizes(replica_counts.rescale(deployment, new, [old]))

    assert all(size >= 0 for size in after.values())
    assert sum(after.values()) <= (
        desired + replica_counts.max_surge(deployment) if desired else 0
    ) or (sum(after.values()) == desired)


def test_a_template_has_one_hash_until_a_collision_is_counted() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    dressed = {
        "spec": {"containers": [{"name": "c"}]},
        "metadata": {"creationTimestamp": None, "labels": {revisions.HASH_LABEL: "x", "a": "b"}},
    }

    assert revisions.template_hash(template, None) == revisions.template_hash(dressed, 0)
    assert revisions.template_hash(template, 1) != revisions.template_hash(template, 0)


def test_history_keeps_what_has_pods_and_drops_the_oldest_revisions() -> None:
    def numbered(name: str, revision: int, replicas: int = 0) -> ReplicaSet:
        made = a_set(name, replicas)
        meta = msgspec.structs.replace(
            made.metadata, annotations={revisions.REVISION: str(revision)}
        )
        return msgspec.structs.replace(made, metadata=meta)

    spec = msgspec.structs.replace(a_deployment(1).spec, revision_history_limit=1)
    deployment = msgspec.structs.replace(a_deployment(1), spec=spec)
    olds = [numbered("c", 3), numbered("a", 1, replicas=1), numbered("b", 2)]

    assert [each.name for each in revisions.beyond_history_limit(deployment, olds)] == ["b"]
