"""RunnerPool: how many runners of one kind to keep, on which Macs, from which image, and how fast to change them.

Spec and status keep the contract of existing fleets. Additions to the spec are `rollout.staging`, `rollout.canary`, `rollout.gate`
and `imagePullSecrets`. `runner_pool_status` has the status.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from bramley.api.grammar import ImageReference, LabelValue, RunnerLabel
from bramley.api.meta import (
    MAX_INT32,
    Count,
    Fields,
    Int32,
    Int64,
    Object,
    Resource,
)
from bramley.api.names import groups
from bramley.api.pod import LocalObjectReference
from bramley.api.runner_pool_status import RunnerPoolStatus
from bramley.api.schema import ValidationRule, items, text, validations

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
        Count,
        Meta(description="How long demand must stay low before the number of runners is reduced."),
    ] = 300


StagingMode = Literal["BestEffort", "Required", "Disabled"]


class Staging(Fields, frozen=True, kw_only=True):
    """How a new image is pulled to the hosts before their runners are replaced."""

    mode: Annotated[
        StagingMode,
        Meta(
            description="BestEffort stages where the disk has room and pulls cold elsewhere, "
            "Required never pulls cold, Disabled does not stage.",
        ),
    ] = "BestEffort"
    max_concurrent: Annotated[
        Annotated[Int32, Meta(ge=1, le=MAX_INT32)] | None,
        Meta(
            description="How many hosts may pull at once; by default as many as the roll may change at once.",
        ),
    ] = None
    max_bytes_per_second: Annotated[
        Annotated[Int64, Meta(ge=1)] | None,
        Meta(
            description="The bandwidth of all pulls of the fleet together; unlimited by default.",
        ),
    ] = None


class Canary(Fields, frozen=True, kw_only=True):
    """How a new image is tried before it is trusted."""

    count: Annotated[
        Count, Meta(description="How many runners try a new image first; 0 skips the trial.")
    ] = 1
    timeout_seconds: Annotated[
        Int32,
        Meta(
            ge=1,
            le=MAX_INT32,
            description="How long a canary may take to become ready and to poll, without its pull.",
        ),
    ] = 600


class Gate(Fields, frozen=True, kw_only=True):
    """When a canary is worse than the last good image."""

    boot_slowdown_percent: Annotated[
        Count,
        Meta(description="How much longer a boot may take, in percent; 0 disables the comparison."),
    ] = 100
    job_failure_points: Annotated[
        Annotated[Int32, Meta(ge=1, le=100)] | None,
        Meta(
            description="By how many percentage points more jobs may fail; absent means not compared.",
        ),
    ] = None
    minimum_sample: Annotated[
        Int32,
        Meta(
            ge=1,
            le=1000,
            description="How many boots of the last good image are kept, and how many jobs of each "
            "image are needed to compare failures.",
        ),
    ] = 20


class Rollout(Fields, frozen=True, kw_only=True):
    """How a new image replaces the old one."""

    max_concurrent_percent: Annotated[
        Int32,
        Meta(
            ge=1,
            le=100,
            description="The share of the pool that may be changing at once; at least one runner.",
        ),
    ] = 5
    staging: Staging = Staging()
    canary: Canary = Canary()
    gate: Gate = Gate()


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
    image_pull_secrets: Annotated[
        list[LocalObjectReference],
        items(max_items=16),
        Meta(description="Secrets of the pool's namespace with credentials for the registry."),
    ] = []
    labels: Annotated[
        list[str], Meta(description="Kept so that older manifests stay valid; nothing reads it.")
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
