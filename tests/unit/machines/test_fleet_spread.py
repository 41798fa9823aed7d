from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from bramley.api.apps import Deployment, DeploymentSpec, DeploymentStatus
from bramley.api.core import Node, NodeCondition, NodeStatus
from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as annotation_names
from bramley.api.names import labels
from bramley.machines.fleet_spread import UNSETTLED_WAIT, Decision, decide, hash_of
from bramley.runtime.outcome import CheckAgain, Settled

FLEET = {labels.FLEET: "builders"}
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def a_node(name: str, *, ready: str = "True", fleet: str = "builders", gone: bool = False) -> Node:
    condition = NodeCondition(type="Ready", status=ready)  # type: ignore[arg-type]
    return Node(
        metadata=ObjectMeta(
            name=name, labels={labels.FLEET: fleet}, deletion_timestamp=NOW if gone else None
        ),
        status=NodeStatus(conditions=[condition]),
    )


def a_deployment(fleet_hash: str | None = None, **status: Any) -> Deployment:
    metadata: dict[str, Any] = {}
    if fleet_hash is not None:
        metadata = {"annotations": {annotation_names.FLEET_HASH: fleet_hash}}
    counts: dict[str, Any] = {
        "observed_generation": 3,
        "replicas": 2,
        "updated_replicas": 2,
        "available_replicas": 2,
        "unavailable_replicas": 0,
    }
    template = {"metadata": metadata, "spec": {"nodeSelector": FLEET}}
    return Deployment(
        metadata=ObjectMeta(name="d", generation=3),
        spec=DeploymentSpec(replicas=2, template=template),
        status=DeploymentStatus(**(counts | status)),
    )


NODES = [
    a_node("b"),
    a_node("a"),
    a_node("c", ready="False"),
    a_node("d", ready="Unknown"),
    a_node("e", fleet="others"),
    a_node("f", gone=True),
]
HASH = hashlib.sha256(b"a\nb").hexdigest()[:16]
UNSETTLED: dict[str, Any] = {
    "observed_generation": 2,
    "replicas": 3,
    "updated_replicas": 1,
    "available_replicas": 1,
    "unavailable_replicas": 1,
}


def test_only_ready_nodes_of_the_selector_count() -> None:
    assert hash_of(NODES, FLEET) == HASH
    assert hash_of(reversed(NODES), FLEET) == HASH
    assert hash_of(NODES, {}) != HASH


@pytest.mark.parametrize("current", [None, "0" * 16])
def test_another_hash_is_written(current: str | None) -> None:
    assert decide(a_deployment(current), NODES) == Decision(Settled(), HASH)


def test_same_hash_is_not_written_also_during_a_rollout() -> None:
    assert decide(a_deployment(HASH), NODES) == Decision(Settled())
    assert decide(a_deployment(HASH, updated_replicas=1), NODES) == Decision(Settled())


@pytest.mark.parametrize("field", UNSETTLED)
def test_unsettled_deployment_is_waited_for(field: str) -> None:
    decision = decide(a_deployment(**{field: UNSETTLED[field]}), NODES)
    assert decision.fleet_hash is None
    assert isinstance(decision.outcome, CheckAgain)
    assert decision.outcome.after == UNSETTLED_WAIT


def test_deployment_that_is_missing_or_deleted_is_left_alone() -> None:
    assert decide(None, NODES) == Decision(Settled())
    deployment = a_deployment()
    deleted = replace(deployment, metadata=replace(deployment.metadata, deletion_timestamp=NOW))
    assert decide(deleted, NODES) == Decision(Settled())


def test_template_without_metadata_and_selector_matches_all_nodes() -> None:
    deployment = replace(a_deployment(), spec=DeploymentSpec(replicas=2, template={}))
    assert decide(deployment, NODES).fleet_hash == hash_of(NODES, {})
