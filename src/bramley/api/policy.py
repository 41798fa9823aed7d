"""Eviction: the removal of a Pod that a PodDisruptionBudget may refuse."""

from __future__ import annotations

from typing import ClassVar

from bramley.api.label_selectors import LabelSelector
from bramley.api.meta import Condition, Fields, Object, Resource, Time


class Preconditions(Fields, frozen=True, kw_only=True):
    """The preconditions of a deletion."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Fields, frozen=True, kw_only=True):
    """The options of a deletion."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    dry_run: list[str] = []


class Eviction(Object, frozen=True, kw_only=True):
    """A request to evict a Pod; it exists only as the `eviction` subresource of a Pod."""

    resource: ClassVar[Resource] = Resource(
        "policy", "v1", "Eviction", "evictions", namespaced=True
    )

    delete_options: DeleteOptions | None = None


class PodDisruptionBudgetSpec(Fields, frozen=True, kw_only=True):
    """How many of the selected Pods must be available, or may be unavailable."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Fields, frozen=True, kw_only=True):
    """How many Pods may be evicted now, and why."""

    observed_generation: int = 0
    disrupted_pods: dict[str, Time] = {}
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: list[Condition] = []


class PodDisruptionBudget(Object, frozen=True, kw_only=True):
    """Limits how many Pods of an application may be evicted at once."""

    resource: ClassVar[Resource] = Resource(
        "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True
    )

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
