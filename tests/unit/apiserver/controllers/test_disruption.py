"""Disruption budgets: what they allow, as a table and with evictions on the embedded API; and aggregated ClusterRoles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bramley.api.core import Pod
from bramley.api.label_selectors import LabelSelector
from bramley.api.meta import Condition, ObjectMeta
from bramley.api.pod import PodCondition, PodStatus
from bramley.api.policy import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from bramley.api.rbac import AggregationRule, ClusterRole, PolicyRule
from bramley.apiserver.controllers import clusterrole_aggregation, disruption
from bramley.base import errors
from tests.unit.apiserver.controllers.cluster_world import a_cluster, settled
from tests.unit.apiserver.controllers.test_deployments import a_deployment, a_world

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DELETION_TIMEOUT = timedelta(minutes=2)


def a_budget(
    spec: dict[str, Any], disrupted: dict[str, datetime] | None = None
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="b", generation=2),
        spec=PodDisruptionBudgetSpec(**spec),
        status=PodDisruptionBudgetStatus(disrupted_pods=disrupted or {}),
    )


def a_pod(name: str, *, ready: bool = True, deleting: bool = False) -> Pod:
    conditions = [PodCondition(type="Ready", status="True" if ready else "False")]
    meta = ObjectMeta(name=name, deletion_timestamp=NOW if deleting else None)
    return Pod(metadata=meta, status=PodStatus(conditions=conditions))


@pytest.mark.parametrize(
    ("spec", "expected", "ready", "allowed", "desired"),
    [
        ({"min_available": 2}, 3, 3, 1, 2),
        ({"min_available": 3}, 3, 3, 0, 3),
        ({"min_available": "50%"}, 5, 5, 2, 3),
        ({"max_unavailable": 1}, 3, 3, 1, 2),
        ({"max_unavailable": 1}, 3, 2, 0, 2),
        ({"max_unavailable": "30%"}, 10, 10, 3, 7),
        ({"max_unavailable": "1%"}, 10, 10, 1, 9),
        ({"max_unavailable": "100%"}, 3, 1, 1, 0),
        ({"max_unavailable": 5}, 3, 3, 3, 0),
        ({"min_available": 0}, 0, 0, 0, 0),
    ],
)
def test_disruptions_allowed_by_a_budget(
    spec: dict[str, Any], expected: int, ready: int, allowed: int, desired: int
) -> None:
    pods = [a_pod(str(number), ready=number < ready) for number in range(expected)]

    found = disruption.count(
        a_budget(spec), pods, expected=expected, now=NOW, deletion_timeout=DELETION_TIMEOUT
    ).status

    assert (found.disruptions_allowed, found.desired_healthy, found.current_healthy) == (
        allowed,
        desired,
        ready,
    )
    [condition] = found.conditions
    assert condition.reason == ("SufficientPods" if allowed else "InsufficientPods")
    assert condition.observed_generation == found.observed_generation == 2


def test_evicted_pod_counts_as_disrupted_for_a_limited_time() -> None:
    pods = [a_pod("a"), a_pod("b"), a_pod("c", deleting=True), a_pod("d")]
    noted = {"a": NOW - timedelta(minutes=1), "b": NOW - timedelta(minutes=3), "c": NOW, "x": NOW}

    counted = disruption.count(
        a_budget({"min_available": 1}, noted),
        pods,
        expected=4,
        now=NOW,
        deletion_timeout=DELETION_TIMEOUT,
    )

    assert counted.status.disrupted_pods == {"a": NOW - timedelta(minutes=1)}
    assert counted.status.current_healthy == 2
    assert counted.again == timedelta(minutes=1)
    assert [pod.name for pod in counted.not_deleted] == ["b"]
    body: Any = disruption.status_patch(counted.status, noted)
    assert body["status"]["disruptedPods"] == {
        "a": "2025-12-31T23:59:00Z",
        "b": None,
        "c": None,
        "x": None,
    }


def test_a_budget_that_cannot_be_calculated_reports_that() -> None:
    old = Condition(type="DisruptionAllowed", status="False", last_transition_time=NOW)
    budget = PodDisruptionBudget(status=PodDisruptionBudgetStatus(conditions=[old]))

    [condition] = disruption.budget_conditions(
        budget, allowed=0, now=NOW + timedelta(hours=1), failure="no such thing"
    )

    assert (condition.reason, condition.message) == ("SyncFailed", "no such thing")
    assert condition.last_transition_time == NOW


async def test_evictions_take_turns_until_the_pods_are_back() -> None:
    async with a_world() as world:
        budget = {
            "metadata": {"name": "b"},
            "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "d"}}},
        }
        await world.client.create_wire(PodDisruptionBudget.resource, budget, namespace="t")
        await world.deploy(a_deployment(4))
        await settled(5)
        first, second, *_ = await world.pods()
        before = await world.client.get(PodDisruptionBudget, "b", namespace="t")

        await world.client.evict(first.name, "t")
        with pytest.raises(errors.RateLimited):
            await world.client.evict(second.name, "t")
        await settled(10)
        await world.client.evict(second.name, "t")

        assert before.status.expected_pods == 4
        assert (before.status.disruptions_allowed, before.status.desired_healthy) == (1, 3)


def a_role(name: str, *verbs: str, **labels: str) -> ClusterRole:
    rules = [PolicyRule(verbs=[verb], api_groups=[""], resources=["pods"]) for verb in verbs]
    return ClusterRole(metadata=ObjectMeta(name=name, labels=labels), rules=rules)


def test_aggregated_role_has_each_rule_once() -> None:
    rule = AggregationRule(cluster_role_selectors=[LabelSelector(match_labels={"to": "whole"})])
    whole = ClusterRole(
        metadata=ObjectMeta(name="whole", labels={"to": "whole"}), aggregation_rule=rule
    )
    parts = [a_role("b", "list", "get", to="whole"), a_role("a", "get", to="whole")]

    found = clusterrole_aggregation.aggregated_rules(whole, [whole, *parts, a_role("c", "watch")])

    assert [each.verbs for each in found] == [["get"], ["list"]]


async def test_rules_of_an_aggregated_role_follow_its_sources() -> None:
    async with a_cluster() as client:
        rule = AggregationRule(cluster_role_selectors=[LabelSelector(match_labels={"to": "x"})])
        await client.create(ClusterRole(metadata=ObjectMeta(name="x"), aggregation_rule=rule))
        await client.create(a_role("part", "get", to="x"))
        await settled()
        grown = await client.get(ClusterRole, "x")

        await client.delete(ClusterRole, "part")
        await settled()

        assert [each.verbs for each in grown.rules or []] == [["get"]]
        assert not (await client.get(ClusterRole, "x")).rules
        assert (await client.get(ClusterRole, "admin")).rules


def test_aggregated_role_does_not_include_itself() -> None:
    rule = AggregationRule(cluster_role_selectors=[LabelSelector(match_labels={"to": "x"})])
    place = ObjectMeta(name="x", labels={"to": "x"})
    role = ClusterRole(metadata=place, aggregation_rule=rule, rules=[PolicyRule(verbs=["get"])])

    assert clusterrole_aggregation.aggregated_rules(role, [role]) == []
