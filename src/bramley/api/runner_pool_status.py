"""The status of a RunnerPool: what the controller observes, and what it must remember.

It keeps the contract of existing fleets; everything below `conditions` is an addition. Slots and tickets are written before the
Pods that they announce are created or marked.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bramley.api.meta import Condition, Count, Fields, Int32, Int64, Time
from bramley.api.schema import list_map

RollPhase = Literal["", "Idle", "Staging", "Canary", "Rolling", "Paused", "Rejected"]
CreatedFor = Literal["Turnover", "Replacement", "ScaleUp"]


class PendingPod(Fields, frozen=True, kw_only=True):
    """A Pod that is about to be created, recorded before the request so that a repeated one creates the same Pod."""

    image: Annotated[str, Meta(description="The image of the Pod.")]
    created_for: Annotated[
        CreatedFor,
        Meta(
            description="Why it is created: Turnover replaces a Pod of the same image, Replacement "
            "one of an older image, ScaleUp none. Turnover does not count as part of a roll.",
        ),
    ]
    required_golden: Annotated[
        bool, Meta(description="Whether only hosts that have the image may run it.")
    ] = False


class Slot(Fields, frozen=True, kw_only=True):
    """One place of a pool, filled by one Pod after another; its number is its position in the list."""

    counter: Annotated[
        Int64, Meta(description="The number of the slot's last Pod; part of the Pod's name.")
    ] = 0
    active: Annotated[
        bool, Meta(description="Whether that Pod exists or is being created; false once it ended.")
    ] = False
    pending: PendingPod | None = None
    failures: Annotated[
        Count, Meta(description="How many of the slot's last Pods in a row failed to start.")
    ] = 0
    retry_at: Annotated[
        Time | None, Meta(description="When the next Pod may be created after a failure.")
    ] = None
    boot_seconds: Annotated[
        Int32 | None,
        Meta(description="How long the VM of that Pod took until it was Ready for the first time."),
    ] = None


class DrainTicket(Fields, frozen=True, kw_only=True):
    """A Pod that the roll drains, recorded before it is marked so that every controller counts it."""

    pod: Annotated[str, Meta(description="The name of the Pod.")]
    since: Annotated[Time, Meta(description="Since when it is drained.")]


class CanaryClock(Fields, frozen=True, kw_only=True):
    """A Pod that tries the target image, and since when it boots."""

    pod: Annotated[str, Meta(description="The name of the Pod.")]
    started_at: Annotated[Time, Meta(description="When its image was there and its VM could boot.")]


class RollProgress(Fields, frozen=True, kw_only=True):
    """How far the roll is in its phase, and when it last made progress."""

    stale_replicas: Annotated[Count, Meta(description="The fewest stale runners so far.")]
    staged_hosts: Annotated[Count, Meta(description="The most hosts with the image so far.")]
    at: Annotated[Time, Meta(description="When one of them, or the phase, last changed.")]


class HostFailures(Fields, frozen=True, kw_only=True):
    """The failures in a row of this pool's Pods on one host."""

    node: Annotated[str, Meta(description="The Node of the host.")]
    count: Annotated[Count, Meta(description="How many Pods in a row failed to start there.")]
    last_at: Annotated[Time, Meta(description="When the last one failed.")]


class AutoscalingStatus(Fields, frozen=True, kw_only=True):
    """The last decision of the autoscaler and what it was based on."""

    replicas: Annotated[Count, Meta(description="The number of runners it decided on.")] = 0
    target: Annotated[
        Count, Meta(description="What the pool would get if it had the fleet to itself.")
    ] = 0
    reason: Annotated[str, Meta(description="The reason as one CamelCase word.")] = ""
    message: Annotated[str, Meta(description="The reason as a sentence, with the inputs.")] = ""
    claimed: Annotated[Count, Meta(description="Jobs that were given to a runner.")] = 0
    occupied: Annotated[Count, Meta(description="Runners that are in use.")] = 0
    queued: Annotated[Count, Meta(description="Jobs that wait and may be started.")] = 0
    withheld: Annotated[Count, Meta(description="Jobs that wait for a limit of their account.")] = 0
    p95_concurrent_last_hour: Annotated[
        Count, Meta(description="Concurrent jobs, 95th percentile of the last hour.")
    ] = 0
    low_demand_since: Annotated[
        Time | None, Meta(description="Since when fewer runners than spec.replicas would do.")
    ] = None


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
    ready_replicas: Annotated[Count, Meta(description="How many runners are alive and Ready.")] = 0
    busy_replicas: Annotated[Count, Meta(description="How many runners have a job.")] = 0
    stale_replicas: Annotated[
        Count, Meta(description="How many runners have another image than targetImage.")
    ] = 0
    rolling_replicas: Annotated[
        Count, Meta(description="How many runners are being changed by the roll at present.")
    ] = 0
    target_image: Annotated[
        str,
        Meta(
            description="The image that the pool converges to; spec.image unless it was rejected."
        ),
    ] = ""
    last_good_image: Annotated[
        str, Meta(description="The image of the last roll that was completed.")
    ] = ""
    previous_good_image: Annotated[
        str, Meta(description="The last good image before that one, for an undo after a roll.")
    ] = ""
    rejected_image: Annotated[
        str,
        Meta(description="The image that failed its trial or was undone; it is not tried again."),
    ] = ""
    promoted_image: Annotated[
        str, Meta(description="The image that was promoted by hand; it is not judged.")
    ] = ""
    undone_image: Annotated[
        str,
        Meta(
            description="The image of the undo annotation that was carried out; it is not carried "
            "out again while the annotation stays."
        ),
    ] = ""
    roll_phase: Annotated[RollPhase, Meta(description="The phase of the roll.")] = ""
    roll_started_at: Annotated[
        Time | None, Meta(description="When the current roll began; absent outside a roll.")
    ] = None
    roll_progress: RollProgress | None = None
    canaries: Annotated[
        list[CanaryClock],
        Meta(
            description="Since when canaries boot; without those for which the image is pulled.",
            extra_json_schema=list_map("pod"),
        ),
    ] = []
    target_failures: Annotated[
        Count, Meta(description="How many Pods of the target image failed during this roll.")
    ] = 0
    canary_passed_image: Annotated[str, Meta(description="The image whose canaries were good.")] = (
        ""
    )
    staged_hosts: Annotated[
        Count, Meta(description="How many hosts of the fleet have the target image.")
    ] = 0
    draining: Annotated[
        list[DrainTicket],
        Meta(description="Pods that the roll drains.", extra_json_schema=list_map("pod")),
    ] = []
    slots: Annotated[
        list[Slot], Meta(description="The places of the pool and the counters of their Pods.")
    ] = []
    boot_seconds: Annotated[
        list[Int32],
        Meta(description="How long the last boots of the last good image took, oldest first."),
    ] = []
    host_failures: Annotated[
        list[HostFailures],
        Meta(
            description="Hosts on which Pods failed to start.", extra_json_schema=list_map("node")
        ),
    ] = []
    pods_resource_version: Annotated[
        str,
        Meta(description="The newest version of the Pods that the last decision was based on."),
    ] = ""
    controller_epoch: Annotated[
        Int64,
        Meta(description="The leader election's epoch of the controller that wrote last."),
    ] = 0
    autoscaling: AutoscalingStatus | None = None
