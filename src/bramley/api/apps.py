"""The apps kinds that a cluster acts on: Deployment and ReplicaSet.

A Pod template is kept as the plain JSON values it came as: it is handed on to Pods whole, with fields that nobody here knows.
"""

from __future__ import annotations

from typing import Any, ClassVar

from bramley.api.label_selectors import LabelSelector
from bramley.api.meta import Condition, Fields, Object, Resource, Time

Template = dict[str, Any]
IntOrPercent = int | str


class ReplicaSetSpec(Fields, frozen=True, kw_only=True):
    """How many Pods of which kind are wanted."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: Template = {}


class ReplicaSetStatus(Fields, frozen=True, kw_only=True):
    """How many Pods there are, and how far they came."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = []


class ReplicaSet(Object, frozen=True, kw_only=True):
    """A number of equal Pods."""

    resource: ClassVar[Resource] = Resource(
        "apps", "v1", "ReplicaSet", "replicasets", namespaced=True
    )

    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdate(Fields, frozen=True, kw_only=True):
    """How many Pods more, and how many fewer, there may be while one template gives way to the next."""

    max_unavailable: IntOrPercent | None = None
    max_surge: IntOrPercent | None = None


class DeploymentStrategy(Fields, frozen=True, kw_only=True):
    """How one template gives way to the next."""

    type: str = ""
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Fields, frozen=True, kw_only=True):
    """Which Pods are wanted, and how a change of them comes about."""

    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    template: Template = {}
    strategy: DeploymentStrategy = DeploymentStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    paused: bool = False
    progress_deadline_seconds: int | None = None


class DeploymentCondition(Condition, frozen=True, kw_only=True):
    """One fact about a Deployment, with the time at which it was last said."""

    last_update_time: Time | None = None


class DeploymentStatus(Fields, frozen=True, kw_only=True):
    """How far a Deployment came."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    conditions: list[DeploymentCondition] = []
    collision_count: int | None = None


class Deployment(Object, frozen=True, kw_only=True):
    """Pods of a template that may change."""

    resource: ClassVar[Resource] = Resource(
        "apps", "v1", "Deployment", "deployments", namespaced=True
    )

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()
