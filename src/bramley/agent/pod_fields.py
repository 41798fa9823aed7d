"""The fields of a Pod that matter for its VM, as pure functions of the Pod.

A Pod for which `unsupported` returns a message can never run as a VM; it is failed with that message.
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
_MAX_SECONDS = 2**31 - 1
# The volume that a server adds to a Pod for its token; guests get their token through a share.
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - the prefix of a name


@dataclass(frozen=True, slots=True)
class VmSize:
    """Cores and memory of a VM; None keeps the value of the image."""

    cpu: int | None = None
    memory_mb: int | None = None

    def __bool__(self) -> bool:
        return self.cpu is not None or self.memory_mb is not None


def vm_size(pod: Pod) -> VmSize:
    """Return the size of a Pod's VM: limits before requests, in whole cores and MiB; InvalidSpec if one is not a quantity."""
    resources = container(pod).resources
    cpu = _amount("cpu", resources.limits, resources.requests)
    memory = _amount("memory", resources.limits, resources.requests)
    return VmSize(cpu=cpu or None, memory_mb=memory // _MEBIBYTE or None)


def container(pod: Pod) -> Container:
    """Return the only container, which is the VM; InvalidSpec unless there is exactly one."""
    if len(pod.spec.containers) != 1:
        raise errors.InvalidSpec(
            f"the Pod has {len(pod.spec.containers)} containers; VMs support one"
        )
    return pod.spec.containers[0]


def unsupported(pod: Pod) -> str | None:
    """Return why this Pod can never run as a VM, or None."""
    return _unsupported_containers(pod) or _unsupported_volume(pod) or _unsupported_pod(pod)


def grace(pod: Pod) -> timedelta:
    """Return the grace period of the guest; that of a delete request takes precedence over the spec's."""
    requested = pod.metadata.deletion_grace_period_seconds
    seconds = pod.spec.termination_grace_period_seconds if requested is None else requested
    return DEFAULT_GRACE if seconds is None else _duration(seconds)


def lifetime(pod: Pod) -> timedelta | None:
    """Return how long a Pod may be active from its start time on, or None."""
    seconds = pod.spec.active_deadline_seconds
    return None if seconds is None else _duration(seconds)


def needs_token(pod: Pod) -> bool:
    """Return whether the guest gets a token: only if the Pod explicitly enables it."""
    return pod.spec.automount_service_account_token is True


def service_account(pod: Pod) -> str:
    """Return the ServiceAccount of the guest's token."""
    return pod.spec.service_account_name or DEFAULT_ACCOUNT


def never_restarts(pod: Pod) -> bool:
    """Return whether the Pod's restartPolicy is Never, the only one that a VM supports."""
    return pod.spec.restart_policy == "Never"


def pool(pod: Pod) -> str:
    """Return the value of a Pod's `pool` label in metrics."""
    return pod.metadata.labels.get(labels.RUNNER_POOL) or agent.UNKNOWN_POOL


def _duration(seconds: int) -> timedelta:
    """Return a bounded duration, so that adding it to a date never overflows: such a Pod could not be deleted."""
    return timedelta(seconds=min(max(seconds, 0), _MAX_SECONDS))


def _amount(resource: str, limits: Mapping[str, Quantity], requests: Mapping[str, Quantity]) -> int:
    """Return the integer part of an amount; 0 if there is none."""
    amount = limits.get(resource, requests.get(resource, "0"))
    try:
        return max(int(quantities.parse(str(amount)).value), 0)
    except quantities.InvalidQuantity as error:
        raise errors.InvalidSpec(f"{resource} of {amount!r} is not a quantity") from error


def _unsupported_containers(pod: Pod) -> str | None:
    # Ephemeral containers are added later, when the VM may run a job; they are ignored.
    if pod.spec.init_containers:
        return "initContainers are not supported for VMs"
    if len(pod.spec.containers) != 1:
        return f"the Pod has {len(pod.spec.containers)} containers; VMs support one"
    if not pod.spec.containers[0].image:
        return "the container has no image"
    return None


def _unsupported_volume(pod: Pod) -> str | None:
    for volume in pod.spec.volumes:
        if volume.projected is None or not volume.name.startswith(_TOKEN_VOLUME):
            return f"VMs do not support volume {volume.name!r}"
    return None


def _unsupported_pod(pod: Pod) -> str | None:
    if pod.spec.host_network:
        return "hostNetwork is not supported for VMs"
    is_of_daemon_set = any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
    # Such Pods are for every Linux machine; a DaemonSet for Macs selects them.
    if is_of_daemon_set and _tolerates_everything(pod) and not _selects_macs(pod):
        return "a DaemonSet that tolerates every taint and does not select macOS is not for VMs"
    return None


def _tolerates_everything(pod: Pod) -> bool:
    return any(
        each.operator == "Exists" and not each.key and each.effect in {"", labels.NO_SCHEDULE}
        for each in pod.spec.tolerations
    )


def _selects_macs(pod: Pod) -> bool:
    return pod.spec.node_selector.get(labels.OS) == labels.DARWIN
