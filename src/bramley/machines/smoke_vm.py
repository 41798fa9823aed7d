"""The Pod that proves a new host: it boots one VM of an image that the host will run, and is deleted again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from bramley.api import conditions
from bramley.api.core import Node, Pod
from bramley.api.meta import ObjectMeta
from bramley.api.names import agent, labels
from bramley.api.names import conditions as condition_types
from bramley.api.pod import Container, LocalObjectReference, PodSpec, Toleration
from bramley.api.runner_pool import RunnerPool
from bramley.machines.mac import Mac

_CONTAINER = "smoke"
_PREFIX = "smoke-"
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class SmokeImage:
    """The image to boot, and the namespace and pull secrets of its Pod."""

    image: str
    namespace: str
    pull_secrets: tuple[str, ...] = ()


class Proof(Enum):
    """What a smoke VM has shown."""

    BOOTING = "booting"
    BOOTED = "booted"
    FAILED = "failed"
    # Other VMs run on the host, and leave no room for this one.
    CROWDED_OUT = "crowded out"
    # Deleted, and not gone yet.
    ENDING = "ending"


def image_for(mac: Mac, configured: str, pools: Iterable[RunnerPool]) -> SmokeImage | None:
    """Return the configured image, else one that a pool of this fleet runs; None if there is neither."""
    if configured:
        return SmokeImage(configured, mac.namespace)
    own = [pool for pool in pools if mac.fleet and pool.spec.fleet_selector == mac.fleet]
    for pool in sorted(own, key=lambda each: (each.namespace or "", each.name)):
        # A new image that does not boot is the fault of the image, and not of the host.
        image = pool.status.last_good_image or pool.spec.image
        names = tuple(each.name for each in pool.spec.image_pull_secrets)
        return SmokeImage(image, pool.namespace or "", names)
    return None


def pod(mac: Mac, node: Node, image: SmokeImage) -> Pod:
    """Return the Pod; it is bound to the Node without the scheduler, and tolerates all taints."""
    return Pod(
        metadata=ObjectMeta(
            name=f"{_PREFIX}{mac.name}",
            namespace=image.namespace,
            labels={labels.SMOKE: labels.TRUE, labels.MACHINE_UID: mac.holder.uid},
        ),
        spec=PodSpec(
            node_name=node.name,
            restart_policy="Never",
            automount_service_account_token=False,
            tolerations=[Toleration(operator="Exists")],
            image_pull_secrets=[LocalObjectReference(name=each) for each in image.pull_secrets],
            containers=[Container(name=_CONTAINER, image=image.image)],
        ),
    )


def proof(pod: Pod, now: datetime, timeout: timedelta) -> tuple[Proof, str]:
    """Return what the VM of a Pod has shown, and why."""
    if pod.deleting:
        return Proof.ENDING, "the smoke VM is being deleted"
    if conditions.is_true(pod.status.conditions, condition_types.READY):
        return Proof.BOOTED, f"a VM of {_image(pod)} has booted"
    if pod.status.phase in _ENDED:
        why = pod.status.message or pod.status.reason or f"its phase is {pod.status.phase}"
        return Proof.FAILED, f"the smoke VM of {_image(pod)} has ended: {why[:300]}"
    created = pod.metadata.creation_timestamp
    if created is not None and now >= created + timeout:
        if _awaits_slot(pod):
            return Proof.CROWDED_OUT, f"the smoke VM of {_image(pod)} waits for the end of others"
        minutes = timeout.total_seconds() / 60
        return Proof.FAILED, f"the smoke VM of {_image(pod)} has not booted in {minutes:.0f} min"
    return Proof.BOOTING, f"a VM of {_image(pod)} boots"


def _awaits_slot(pod: Pod) -> bool:
    waiting = (each.state.waiting for each in pod.status.container_statuses)
    return any(each is not None and each.reason == agent.AWAITING_SLOT for each in waiting)


def _image(pod: Pod) -> str:
    return pod.spec.containers[0].image if pod.spec.containers else "an unknown image"
