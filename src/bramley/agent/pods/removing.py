"""The steps that leave nothing behind: VM, user data, run, record, finalizer, Pod; each can be taken again at any time."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import msgspec

from bramley.agent.pods import observing
from bramley.agent.pods.turn import Turn
from bramley.api.names import finalizers
from bramley.base import errors, log
from bramley.runtime import finalizers as holding
from bramley.runtime.keys import key_of
from bramley.runtime.outcome import Outcome, Settled

logger = log.get(__name__)


async def delete_vm(turn: Turn) -> Outcome | None:
    """Delete the VM; it counts as gone only when its folder is."""
    logger.info("Deleting VM", vm=turn.vm)
    await turn.means.tart.delete(turn.vm)
    if observing.has_bundle(turn.vm, turn.means):
        raise errors.Unavailable(f"VM {turn.vm} was deleted and is still there")
    return None


async def remove_data(turn: Turn) -> Outcome | None:
    """Remove what the guest was given, secrets first."""
    try:
        await turn.means.guests.forget(turn.vm)
    except OSError as error:
        raise errors.Unavailable(f"user data of {turn.vm} cannot be removed: {error}") from error
    return None


async def forget_run(turn: Turn) -> Outcome | None:
    """Forget the run; how it ended is written down or of no use to anybody."""
    turn.means.runs.forget(turn.vm)
    return None


async def drop_record(turn: Turn) -> Outcome | None:
    """Forget the VM, and wake those who wait for its slot."""
    means = turn.means
    means.ledger.drop(turn.vm)
    for pod in means.pods.all():
        if pod.uid != turn.uid:
            means.bell.ring(key_of(pod))
    if turn.subject.pod is not None:
        turn.see(turn.subject.pod)
    return None


async def release(turn: Turn) -> Outcome | None:
    """Take our finalizer off: the VM is gone."""
    pod = turn.pod
    try:
        await holding.remove(turn.means.kube, pod, finalizers.VM_CLEANUP)
    except errors.NotFound:
        return Settled()
    left = [each for each in pod.metadata.finalizers if each != finalizers.VM_CLEANUP]
    metadata = msgspec.structs.replace(pod.metadata, finalizers=left)
    turn.see(msgspec.structs.replace(pod, metadata=metadata))
    return None


async def complete(turn: Turn) -> Outcome:
    """End the Pod's grace: a Pod that is bound to a Node stays until the Node's agent says so."""
    pod = turn.pod
    # With no grace left the server ends it itself, as soon as nobody else's finalizer keeps it.
    if pod.metadata.deletion_grace_period_seconds != 0:
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await turn.means.kube.delete(pod, grace=timedelta())
    turn.means.memory.forget(turn.uid)
    return Settled()
