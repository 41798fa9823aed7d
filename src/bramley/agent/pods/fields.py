"""What the fields of a Pod ask of its VM, as pure functions; nothing here looks at the host.

Whatever `unsupported` names can never be given, so such a Pod is failed with that sentence and never touched otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from bramley.api import quantities
from bramley.api.names import agent, labels
from bramley.api.pod import Container, Pod, Quantity
from bramley.base import errors

DEFAULT_GRACE = timedelta(seconds=30)
DEFAULT_ACCOUNT = "default"
_MEBIBYTE = 1024 * 1024
_LIFETIME_SECONDS = 2**31 - 1
# The volume that a server adds to a Pod for its token, which our guests get through their own share.
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - the prefix of a name


@dataclass(frozen=True, slots=True)
class VmSize:
    """Cores and memory of a VM; None leaves what the image says."""

    cpu: int | None = None
    memory_mb: int | None = None

    def __bool__(self) -> bool:
        return self.cpu is not None or self.memory_mb is not None


def vm_size(pod: Pod) -> VmSize:
    """Return the size that a Pod wants: limits before requests, whole cores and whole mebibytes; InvalidSpec if unreadable."""
    resources = container(pod).resources
    cpu = _amount("cpu", resources.limits, resources.requests)
    states = _amount("memory", resources.limits, resources.requests)
    return VmSize(cpu=cpu or None, memory_mb=states // _MEBIBYTE or None)


def container(pod: Pod) -> Container:
    """Return the one container, which is the VM; InvalidSpec when there is not exactly one."""
    if len(pod.spec.containers) != 1:
        raise errors.InvalidSpec(f"the Pod has {len(pod.spec.containers)} containers, a VM is one")
    return pod.spec.containers[0]


def unsupported(pod: Pod) -> str | None:
    """Return why this Pod can never be a VM, or None."""
    return _wrong_containers(pod) or _wrong_volume(pod) or _wrong_kind(pod)


def grace(pod: Pod) -> timedelta:
    """Return how long the guest has to end by itself; whoever deletes a Pod may have asked for another time."""
    asked = pod.metadata.deletion_grace_period_seconds
    seconds = pod.spec.termination_grace_period_seconds if asked is None else asked
    return DEFAULT_GRACE if seconds is None else _span(seconds)


def lifetime(pod: Pod) -> timedelta | None:
    """Return how long a Pod may be active from its start time on, or None."""
    seconds = pod.spec.active_deadline_seconds
    return None if seconds is None else _span(seconds)


def wants_token(pod: Pod) -> bool:
    """Tell whether the guest gets a token: only if the Pod itself says so."""
    return pod.spec.automount_service_account_token is True


def service_account(pod: Pod) -> str:
    """Return whose token the guest gets."""
    return pod.spec.service_account_name or DEFAULT_ACCOUNT


def is_once(pod: Pod) -> bool:
    """Tell whether the Pod expects what it gets: a VM runs once, whatever the policy says."""
    return pod.spec.restart_policy == "Never"


def pool(pod: Pod) -> str:
    """Return the pool that metrics count a Pod under."""
    return pod.metadata.labels.get(labels.RUNNER_POOL) or agent.UNKNOWN_POOL


def _span(seconds: int) -> timedelta:
    """Return a time that can be added to a date, whatever number a Pod gives: a Pod that raises could never be deleted."""
    return timedelta(seconds=min(max(seconds, 0), _LIFETIME_SECONDS))


def _amount(resource: str, limits: Mapping[str, Quantity], requests: Mapping[str, Quantity]) -> int:
    """Return the whole part of an amount; 0 when there is none."""
    asked = limits.get(resource, requests.get(resource, "0"))
    try:
        return max(int(quantities.parse(str(asked)).value), 0)
    except quantities.NoQuantity as error:
        raise errors.InvalidSpec(f"{resource} of {asked!r} is no quantity") from error


def _wrong_containers(pod: Pod) -> str | None:
    # Ephemeral containers come later, to a Pod whose VM may run a job; they are left alone.
    if pod.spec.init_containers:
        return "a VM has no init containers"
    if len(pod.spec.containers) != 1:
        return f"the Pod has {len(pod.spec.containers)} containers, a VM is one"
    if not pod.spec.containers[0].image:
        return "the container names no image"
    return None


def _wrong_volume(pod: Pod) -> str | None:
    for volume in pod.spec.volumes:
        if volume.projected is None or not volume.name.startswith(_TOKEN_VOLUME):
            return f"a VM cannot be given volume {volume.name!r}"
    return None


def _wrong_kind(pod: Pod) -> str | None:
    if pod.spec.host_network:
        return "a VM has no network of its host"
    owned = any(one.kind == "DaemonSet" for one in pod.metadata.owner_references)
    # Such Pods are meant for every Linux machine; one that is meant for Macs selects them.
    if owned and _tolerates_everything(pod) and not _selects_macs(pod):
        return (
            "a DaemonSet that tolerates every taint and does not select macOS is not meant for VMs"
        )
    return None


def _tolerates_everything(pod: Pod) -> bool:
    return any(
        one.operator == "Exists" and not one.key and one.effect in {"", labels.NO_SCHEDULE}
        for one in pod.spec.tolerations
    )


def _selects_macs(pod: Pod) -> bool:
    return pod.spec.node_selector.get(labels.OS) == labels.DARWIN
