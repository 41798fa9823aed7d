"""The steps towards a running VM: claim, clone, start, and what becomes of a start that tart refused.

Each writes the ledger before the deed that the record stands for, with one exception: a clone counts as made only after it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import msgspec

from bramley.agent.images import image_requests
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.pods import fields, observation, status
from bramley.agent.pods.context import TROUBLE, Turn
from bramley.agent.tart import failures
from bramley.agent.tart.driver import RunOptions, Share
from bramley.api.names import agent, events, finalizers, guest
from bramley.base import errors, log
from bramley.runtime.outcome import CheckAgain, Outcome, Settled

logger = log.get(__name__)

# A session that was alive so recently need not be looked at again before a VM starts in it.
JUST_SEEN = timedelta(seconds=5)


async def reject(turn: Turn) -> Outcome:
    """Fail a Pod that can never be a VM; it was touched in no other way, so nothing hinders its deletion."""
    why = fields.unsupported(turn.pod) or ""
    turn.warn(agent.UNSUPPORTED, why)
    await turn.say(status.rejected(turn.pod, turn.facts(), message=why))
    return Settled()


async def expire(turn: Turn) -> Outcome:
    """Fail a Pod whose active deadline has passed before it had a VM."""
    why = "no VM could be made before activeDeadlineSeconds had passed"
    turn.warn(agent.DEADLINE_EXCEEDED, why)
    said = status.rejected(turn.pod, turn.facts(), message=why, reason=agent.DEADLINE_EXCEEDED)
    await turn.say(said)
    return Settled()


async def hold(turn: Turn) -> Outcome:
    """Put our finalizer on the Pod, before anything is made for it."""
    try:
        await turn.means.kube.add_finalizer(turn.pod, finalizers.VM_CLEANUP)
    except errors.NotFound:
        return Settled()
    # Not left to the watch: a change that is lost on the way must not strand the Pod.
    return CheckAgain(timedelta(), "the finalizer is on")


async def adopt(turn: Turn) -> Outcome | None:
    """Take a VM into the ledger that nobody wrote down as started; it is followed to its end."""
    means, pod = turn.means, turn.pod
    known = means.ledger.find_by_uid(turn.uid)
    vm = observation.legacy_of(pod, known, means) or turn.vm
    record = known or _new_record(turn, vm)
    is_there = observation.has_bundle(vm, means) or means.runs.is_begun(vm)
    means.ledger.put(
        msgspec.structs.replace(
            record,
            state=VmState.STARTED,
            is_adopted=True,
            # When it was made nobody knows; one that is not there may still be under way from now on.
            created_at=None if is_there else record.created_at,
            boot_id=means.host.boot_id(),
            started_at=record.started_at or pod.status.start_time or means.clock.now(),
        )
    )
    logger.warning("VM adopted", vm=vm, state=known.state if known else "unknown")
    turn.tell(events.ADOPTED_VM, f"VM {vm} was not begun by this agent and is followed to its end")
    turn.see(pod)
    return None


async def claim(turn: Turn) -> Outcome | None:
    """Begin to provision: from here on the VM's name is known as ours."""
    means, pod, notes = turn.means, turn.pod, turn.notes
    notes.claimed_at = means.clock.monotonic()
    means.ledger.put(_new_record(turn, turn.vm))
    if notes.first_time(events.CREATING_VM):
        _tell_beginning(turn)
    if not fields.is_once(pod) and notes.first_time(events.RUNS_ONCE):
        turn.warn(
            events.RUNS_ONCE,
            f"a VM runs once: restartPolicy {pod.spec.restart_policy or 'Always'} is taken as Never",
        )
    return None


async def clone(turn: Turn) -> Outcome | None:
    """Make the disk, and give it an identity and its size; only then it is written down as whole."""
    means, answer = turn.means, turn.answer
    if not isinstance(answer, image_requests.Ready):
        return None
    size = fields.vm_size(turn.pod)
    work = _while_looking(turn, _make_disk(turn, answer, size))
    if not await means.departures.unless_leaving(turn.key, turn.uid, work):
        return CheckAgain(timedelta(), "the Pod is to go")
    means.ledger.put(
        msgspec.structs.replace(
            turn.record, state=VmState.CLONED, golden=answer.golden, digest=answer.digest
        )
    )
    means.metrics.provisioned(fields.pool(turn.pod), _seconds_of_work(turn), is_warm=answer.is_warm)
    turn.tell(events.CLONED_VM, f"Cloned VM {turn.vm} from {answer.golden}")
    return None


async def start(turn: Turn) -> Outcome | None:
    """Run the VM. The record says so first: from then on this disk counts as used, whatever happens."""
    means = turn.means
    if not await means.departures.unless_leaving(turn.key, turn.uid, _prepare(turn)):
        return CheckAgain(timedelta(), "the Pod is to go")
    # Others may have started theirs while we prepared; between this look and our record nothing waits.
    if not means.slots.has_room(turn.vm) or means.departures.is_leaving(turn.key, turn.uid):
        return CheckAgain(timedelta(), "the world has changed")
    means.ledger.put(
        msgspec.structs.replace(
            turn.record,
            state=VmState.STARTED,
            boot_id=means.host.boot_id(),
            started_at=means.clock.now(),
        )
    )
    turn.notes.started_at = means.clock.monotonic()
    with contextlib.suppress(errors.AlreadyExists):
        await means.tart.start(means.runs, turn.vm, RunOptions(shares=_shares(turn)))
    turn.tell(events.STARTED_VM, f"Started VM {turn.vm}")
    return None


async def regret(turn: Turn) -> Outcome | None:
    """Throw the disk of a refused start away, say why it was refused, and begin anew after a while."""
    means = turn.means
    error = observation.start_failure(turn.vm, turn.record, means)
    await means.tart.delete(turn.vm)
    if error is None:
        return None
    if isinstance(error, failures.LimitReached):
        means.slots.was_refused(turn.vm)
    return await turn.failed(error)


async def _make_disk(turn: Turn, answer: image_requests.Ready, size: fields.VmSize) -> None:
    tart, vm = turn.means.tart, turn.vm
    await turn.means.images.clone(answer.golden, vm)
    try:
        await tart.set(
            vm, cpu=size.cpu, memory_mb=size.memory_mb, random_mac=True, random_serial=True
        )
    except failures.Unusable:
        raise
    except (failures.TartFailed, errors.TimedOut) as error:
        # A guest with its parent's identity still works; one without its size is not what was asked for.
        await tart.set(vm, cpu=size.cpu, memory_mb=size.memory_mb)
        turn.warn(events.IDENTITY_REGEN_SKIPPED, f"VM {vm} keeps its image's identity: {error}")


async def _while_looking(turn: Turn, work: Coroutine[Any, Any, None]) -> None:
    """Do the work while the session is looked at, which takes as long; what that look misses is found before the start."""
    trouble: Exception | None = None
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(_look(turn))
        try:
            await work
        except TROUBLE as error:
            trouble = error
            looking.cancel()
    if trouble is not None:
        raise trouble


async def _look(turn: Turn) -> None:
    if turn.means.session is not None:
        with contextlib.suppress(*TROUBLE):
            await turn.means.session.look()


async def _prepare(turn: Turn) -> None:
    means = turn.means
    if means.session is not None:
        await means.session.ensure(seen_within=JUST_SEEN)
    await means.guests.prepare(turn.pod, turn.vm)


def _seconds_of_work(turn: Turn) -> float:
    """Return how long image and clone took; from the record, if an earlier agent began."""
    clock, began, claimed = turn.means.clock, turn.record.created_at, turn.notes.claimed_at
    if claimed is not None:
        return clock.monotonic() - claimed
    return max((clock.now() - began).total_seconds(), 0.0) if began is not None else 0.0


def _shares(turn: Turn) -> tuple[Share, ...]:
    shares = turn.means.data.shares(turn.vm)
    return (
        Share(guest.ENV_SHARE, shares.env, is_read_only=True),
        Share(guest.STATUS_SHARE, shares.status),
    )


def _new_record(turn: Turn, vm: str) -> VmRecord:
    pod = turn.pod
    return VmRecord(
        vm=vm,
        namespace=turn.key.namespace,
        pod=turn.key.name,
        uid=turn.uid,
        image=next((each.image for each in pod.spec.containers), ""),
        pool=fields.pool(pod),
        boot_id=turn.means.host.boot_id(),
        created_at=turn.means.clock.now(),
    )


def _tell_beginning(turn: Turn) -> None:
    """Tell that provisioning starts, and how long the Pod has waited for that."""
    turn.tell(events.CREATING_VM, f"Creating VM {turn.vm}")
    created = turn.pod.metadata.creation_timestamp
    if created is not None:
        waited = (turn.means.clock.now() - created).total_seconds()
        turn.means.metrics.provision_delay.of(fields.pool(turn.pod)).observe(max(waited, 0.0))
