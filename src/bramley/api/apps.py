"""The apps kinds that a cluster acts on: Deployment and ReplicaSet.

A Pod template stays plain JSON: it is copied to Pods completely, including fields that have no type here.
"""

from __future__ import annotations

from typing import Any, ClassVar

from bramley.api.label_selectors import LabelSelector
from bramley.api.meta import Condition, Fields, Object, Resource, Time

Template = dict[str, Any]
IntOrPercent = int | str


class ReplicaSetSpec(Fields, frozen=True, kw_only=True):
    """The desired number of Pods, and their template."""

    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = LabelSelector()
    template: Template = {}


class ReplicaSetStatus(Fields, frozen=True, kw_only=True):
    """The observed numbers of Pods."""

    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = []


class ReplicaSet(Object, frozen=True, kw_only=True):
    """A number of identical Pods."""

    resource: ClassVar[Resource] = Resource(
        "apps", "v1", "ReplicaSet", "replicasets", namespaced=True
    )

    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdate(Fields, frozen=True, kw_only=True):
    """The surplus and the missing Pods that are allowed during a rolling update."""

    max_unavailable: IntOrPercent | None = None
    max_surge: IntOrPercent | None = None


class DeploymentStrategy(Fields, frozen=True, kw_only=True):
    """How Pods of an old template are replaced."""

    type: str = ""
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Fields, frozen=True, kw_only=True):
    """The desired Pods, and how a change is rolled out."""

    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    template: Template = {}
    strategy: DeploymentStrategy = DeploymentStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    paused: bool = False
    progress_deadline_seconds: int | None = None


class DeploymentCondition(Condition, frozen=True, kw_only=True):
    """One condition of a Deployment, with the time of its last update."""

    last_update_time: Time | None = None


class DeploymentStatus(Fields, frozen=True, kw_only=True):
    """The observed state of a Deployment."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    conditions: list[DeploymentCondition] = []
    collision_count: int | None = None


class Deployment(Object, frozen=True, kw_only=True):
    """Pods of a template, replaced gradually when the template changes."""

    resource: ClassVar[Resource] = Resource(
        "apps", "v1", "Deployment", "deployments", namespaced=True
    )

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()
