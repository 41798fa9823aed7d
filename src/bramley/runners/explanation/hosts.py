"""Explains the hosts of a fleet: whether they take Pods, how many, and whether they have an image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from bramley.api.runner_pool import RunnerPool
from bramley.api.staging import NO_ROOM, StagedImage, State
from bramley.base.explanation import HostNote, age
from bramley.runners import capacity, rollout
from bramley.runners.decision import AVOIDED_FOR, FAILURES_TO_AVOID, Fleet
from bramley.runners.hosts import NOT_READY, UNSCHEDULABLE, Host

TAKES_PODS = "takes Pods"
HAS_IMAGE = "has the image"
# Of a Pod's host whose Node was deleted, or moved to another fleet.
NOT_A_HOST = "is not a host of the fleet any more"
_UNUSABLE = {UNSCHEDULABLE: "is cordoned or being deleted", NOT_READY: "is not Ready"}


def host_notes(pool: RunnerPool, fleet: Fleet, *, now: datetime) -> tuple[HostNote, ...]:
    """Return what a pool can expect of each host of its fleet."""
    spec, target = pool.spec, rollout.target_of(pool)
    free = capacity.places(spec, fleet.hosts, fleet.pods).free
    avoided = avoided_hosts(pool, now)
    return tuple(
        HostNote(
            name=host.name,
            state=avoided.get(host.name, "")
            if host.is_usable and host.name in avoided
            else state(host),
            image=image_state(host, target),
            slots=host.slots(cpu_milli=spec.pod_cpu_milli, memory_mb=spec.pod_memory_mb),
            free=free.get(host.name, 0),
        )
        for host in sorted(fleet.hosts, key=lambda each: each.name)
    )


def state(host: Host) -> str:
    """Return whether a host takes Pods, or why not."""
    if host.is_usable:
        return TAKES_PODS
    pressure = host.unusable.replace("_", " ")
    return _UNUSABLE.get(host.unusable, f"reports {pressure}")


def image_state(host: Host, image: str) -> str:
    """Return the state of an image on a host."""
    if host.has_image(image):
        return HAS_IMAGE
    reported = host.staged(image)
    if reported is not None:
        return _reported(reported)
    return "will pull the image" if host.is_requested(image) else "does not have the image"


def _reported(image: StagedImage) -> str:
    if image.state is State.PULLING:
        return "pulls the image" if image.percent is None else f"pulls the image, {image.percent} %"
    if image.state is State.FAILED:
        is_full = image.message.startswith(NO_ROOM)
        return "has no room for the image" if is_full else f"could not pull: {image.message}"
    return "waits to pull the image" if image.state is State.WAITING else HAS_IMAGE


def avoided_hosts(pool: RunnerPool, now: datetime) -> dict[str, str]:
    """Return the hosts on which Pods of the pool kept failing, with the reason."""
    return {
        each.node: f"is avoided if possible: {each.count} Pods in a row failed there, the last one "
        f"{age(each.last_at, now)} ago"
        for each in pool.status.host_failures
        if each.count >= FAILURES_TO_AVOID and now - each.last_at < AVOIDED_FOR
    }


def pulling(hosts: Iterable[Host], names: Iterable[str], image: str) -> list[str]:
    """Return the hosts with these names and how far their pull is."""
    by_name = {host.name: host for host in hosts}
    return [
        f"{name} {image_state(by_name[name], image) if name in by_name else NOT_A_HOST}"
        for name in sorted(names)
    ]


def listed(names: Sequence[str], *, most: int = 5) -> str:
    """Return names as text, shortened if there are many."""
    more = len(names) - most
    text = ", ".join(names[:most])
    return f"{text} and {more} more" if more > 0 else text
