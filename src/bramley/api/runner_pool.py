"""RunnerPool: how many runners of one kind to keep, on which Macs, from which image, and how fast to change them.

Spec and status keep the contract of existing fleets; `conditions`, `observedGeneration` and `selector` are additions.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from bramley.api.grammar import ImageReference, LabelValue, RunnerLabel
from bramley.api.meta import (
    MAX_INT32,
    Condition,
    Count,
    Fields,
    Int32,
    Int64,
    Object,
    Resource,
    Time,
)
from bramley.api.names import groups
from bramley.api.schema import ValidationRule, items, list_map, text, validations

OS_IS_FIXED = ValidationRule("self == oldSelf", "the operating system of a pool cannot change")
# Fleets without a host carry an enabled autoscaler with a ceiling of 0, which then does not act.
FLOOR_FITS = ValidationRule(
    "!self.enabled || self.maxReplicas == 0 || self.maxReplicas >= self.minWarmPoolFloor",
    "minWarmPoolFloor must not exceed maxReplicas",
    field=".minWarmPoolFloor",
)
RUNTIME_CLASS_IS_LINUX = ValidationRule(
    "self.os == 'linux' || !has(self.runtimeClass) || self.runtimeClass == ''",
    "runtimeClass is for linux pools only",
    field=".runtimeClass",
)


class Autoscaling(Fields, frozen=True, kw_only=True):
    """How the number of runners follows demand."""

    checks: ClassVar[tuple[ValidationRule, ...]] = (FLOOR_FITS,)

    enabled: Annotated[
        bool, Meta(description="Whether the autoscaler sets spec.replicas of this pool.")
    ] = False
    min_warm_pool_floor: Annotated[
        Count,
        Meta(description="How many idle runners to keep beyond those that have work."),
    ] = 1
    max_replicas: Annotated[
        Count, Meta(description="The maximum number of runners; at 0 the autoscaler does not act.")
    ] = 0
    scale_down_cooldown_seconds: Annotated[
        Count, Meta(description="The least time between two steps down.")
    ] = 300


class Rollout(Fields, frozen=True, kw_only=True):
    """How fast a new image replaces the old one."""

    max_concurrent_percent: Annotated[
        Int32,
        Meta(
            ge=1,
            le=100,
            description="The share of the pool that may be changing at once; at least one runner.",
        ),
    ] = 5


class Provisioning(Fields, frozen=True, kw_only=True):
    """How carefully the sandboxes of Linux pools are started; macOS pools do not read it."""

    max_concurrent_per_fleet_selector: Annotated[
        Int32,
        Meta(
            ge=1,
            le=MAX_INT32,
            description="How many sandboxes may start at once over all pools of the fleet; the "
            "lowest value among them holds.",
        ),
    ] = 4
    start_timeout_seconds: Annotated[
        Count,
        Meta(description="When a Pod that did not start is given up; 0 means never."),
    ] = 300


class RunnerPoolSpec(Fields, frozen=True, kw_only=True):
    """The desired state of a pool."""

    checks: ClassVar[tuple[ValidationRule, ...]] = (RUNTIME_CLASS_IS_LINUX,)

    image: Annotated[
        ImageReference,
        Meta(description="The VM image, best pinned by digest; a change of it rolls the pool."),
    ]
    fleet_selector: Annotated[
        LabelValue,
        Meta(description="The group of hosts to run on; pools with the same one share them."),
    ]
    dispatch_label: Annotated[
        RunnerLabel, Meta(description="The runs-on label whose jobs come to this pool.")
    ]
    runner_labels: Annotated[
        list[RunnerLabel],
        items(max_items=100),
        Meta(description="Labels of the GitHub runners, beside the dispatch label."),
    ]
    os: Annotated[
        Literal["darwin", "linux"],
        Meta(
            description="The operating system of the runners.",
            extra_json_schema=validations(OS_IS_FIXED),
        ),
    ] = "darwin"
    replicas: Annotated[
        Count,
        Meta(description="How many runners to keep; the autoscaler writes it when enabled."),
    ] = 0
    pod_cpu_milli: Annotated[
        Count,
        Meta(description="Thousandths of a CPU per runner; 0 leaves it to the image."),
    ] = field(name="podCPUMilli", default=8000)
    pod_memory_mb: Annotated[
        Count, Meta(description="Memory per runner in MiB; 0 leaves it to the image.")
    ] = field(name="podMemoryMB", default=14336)
    autoscaling: Autoscaling = Autoscaling()
    rollout: Rollout = Rollout()
    provisioning: Provisioning | None = None
    runtime_class: Annotated[
        str,
        text(max_length=253),
        Meta(description="The RuntimeClass of Linux runners, such as kata-qemu."),
    ] = ""
    idle_timeout_seconds: Annotated[
        Count | None,
        Meta(
            description="When a registered runner without a job gives up; 0 or absent means never.",
        ),
    ] = None
    labels: Annotated[
        list[str], Meta(description="Kept so that older manifests stay valid; nothing reads it.")
    ] = []


class RunnerPoolStatus(Fields, frozen=True, kw_only=True):
    """The observed state of a pool."""

    observed_replicas: Annotated[
        Count, Meta(description="How many runners are alive or were just made.")
    ] = 0
    observed_image: Annotated[str, Meta(description="The spec.image that was last acted on.")] = ""
    image_rolled_at: Annotated[
        Time | None, Meta(description="When observedImage last changed.")
    ] = None
    last_reconcile: Annotated[
        Time | None, Meta(description="When the controller last finished a pass.")
    ] = None
    last_scale_down_at: Annotated[
        Time | None, Meta(description="When the autoscaler last reduced the number of runners.")
    ] = None
    observed_generation: Annotated[
        Int64, Meta(description="The generation of the spec that was last acted on.")
    ] = 0
    selector: Annotated[
        str, Meta(description="The label selector of the pool's Pods, for the scale subresource.")
    ] = ""
    conditions: Annotated[
        list[Condition],
        Meta(description="The conditions of the pool.", extra_json_schema=list_map("type")),
    ] = []


class RunnerPool(Object, frozen=True, kw_only=True):
    """A number of identical single-use runners on one fleet of hosts."""

    resource: ClassVar[Resource] = Resource(
        groups.RUNNERS, groups.VERSION, "RunnerPool", "runnerpools", namespaced=True
    )

    spec: Annotated[RunnerPoolSpec, Meta(description="The desired state of the pool.")]
    status: Annotated[RunnerPoolStatus, Meta(description="The observed state of the pool.")] = (
        RunnerPoolStatus()
    )
