"""The steps that only look and say: for what a Pod waits, and how its running VM is. Each says when to look again."""

from __future__ import annotations

from datetime import timedelta

from bramley.agent.images import image_requests
from bramley.agent.pods import fields, observation, status
from bramley.agent.pods.context import Turn
from bramley.api.names import agent, events
from bramley.base import errors, log
from bramley.runtime.outcome import CheckAgain, Outcome, Settled

logger = log.get(__name__)

# A guest gets its address within seconds; each look costs a process.
BOOT_POLL = timedelta(seconds=1)
# Nothing is missed in between, for an end rings; and a look costs nothing.
REST_POLL = timedelta(seconds=30)
# The end of a VM that no supervisor of ours watches is seen only by looking.
UNWATCHED_POLL = timedelta(seconds=2)
SLOT_POLL = timedelta(seconds=5)
IMAGE_POLL = timedelta(minutes=1)
REMAINS_POLL = timedelta(seconds=30)
_PERCENT_STEP = 10


async def rest(turn: Turn) -> Outcome:
    """Leave a Pod alone that has ended."""
    turn.means.memory.forget(turn.uid)
    return Settled()


async def await_predecessor(turn: Turn) -> Outcome:
    """Wait until what a Pod of the same name left behind is gone."""
    why = "a Pod of the same name has left a VM that is being removed"
    await turn.say(status.waiting(turn.pod, turn.facts(), reason=events.CREATING_VM, message=why))
    return CheckAgain(BOOT_POLL, why)


async def await_slot(turn: Turn) -> Outcome:
    """Wait until another VM has ended."""
    means = turn.means
    made = means.slots.claimed(observation.claimants(means))
    taken = ", ".join(sorted((means.slots.occupied() | made) - {turn.vm}))
    why = f"all VMs that this host may run are taken: {taken or 'by processes that are not ours'}"
    if turn.notes.first_time(agent.AWAITING_SLOT):
        turn.warn(agent.AWAITING_SLOT, why)
    await turn.say(status.waiting(turn.pod, turn.facts(), reason=agent.AWAITING_SLOT, message=why))
    return CheckAgain(SLOT_POLL, why)


async def await_image(turn: Turn) -> Outcome:
    """Wait for the image, telling how far it has come; or say why it does not come."""
    answer, image = turn.answer, fields.container(turn.pod).image
    if isinstance(answer, image_requests.Failed):
        return await turn.failed(answer.error, answer.retry_after)
    turn.notes.is_failing = False
    percent = answer.percent if isinstance(answer, image_requests.Pulling) else None
    why = f"Pulling image {image}{'' if percent is None else f', {_rounded(percent)} %'}"
    if turn.notes.first_time(why):
        turn.tell(events.PULLING_IMAGE, why)
    await turn.say(status.waiting(turn.pod, turn.facts(), reason=events.PULLING_IMAGE, message=why))
    return CheckAgain(IMAGE_POLL, why)


async def await_retry(turn: Turn) -> Outcome:
    """Wait until the last failure is long enough ago."""
    return CheckAgain(turn.means.memory.hold_off(turn.uid), "the last try has just failed")


async def await_remains(turn: Turn) -> Outcome:
    """Wait until nothing of a killed agent can come any more."""
    return CheckAgain(REMAINS_POLL, f"a clone of {turn.vm} may still be under way")


async def await_end(turn: Turn) -> Outcome:
    """Wait for a guest that was asked to shut down; its end rings."""
    turn.means.exits.follow(turn.vm, turn.key)
    asked_at = turn.notes.asked_at or 0.0
    left = asked_at + fields.grace(turn.pod).total_seconds() - turn.means.clock.monotonic()
    poll = max(timedelta(seconds=left), timedelta(milliseconds=100))
    return CheckAgain(min(poll, _poll(turn)), "the guest shuts down")


async def follow(turn: Turn) -> Outcome:
    """Tell that the VM runs, and by which address it is reached."""
    means = turn.means
    means.exits.follow(turn.vm, turn.key)
    means.guests.keep(turn.pod, turn.vm)
    is_new = not turn.notes.address
    if is_new:
        # Told before it is asked for, because that takes a second.
        await _say_running(turn)
    if turn.subject.pod is None:
        return Settled()
    address = turn.notes.address = turn.notes.address or await _address(turn)
    if address:
        await _say_running(turn, ip=await _shown(turn, address))
    if address and is_new and turn.subject.pod is not None:
        await _tell_booted(turn)
    poll = _poll(turn) if address else BOOT_POLL
    return CheckAgain(_not_beyond_deadline(turn, poll), "the VM runs")


async def _say_running(turn: Turn, *, ip: str | None = None) -> None:
    """Say that the VM runs, and tell people when its guest falls silent or answers again."""
    was_silent = status.says_silent(turn.pod)
    answers = turn.means.hearing.answers(turn.vm)
    # What an earlier agent has found out stands until this one knows.
    is_silent = was_silent if answers is None else not answers
    said = status.running(
        turn.pod, turn.facts(), started_at=turn.record.started_at, ip=ip, is_silent=is_silent
    )
    await turn.say(said)
    if turn.subject.pod is None or status.says_silent(turn.pod) == was_silent:
        return
    if is_silent:
        turn.warn(events.GUEST_SILENT, status.silence(turn.vm))
    else:
        turn.tell(events.GUEST_ANSWERS, f"The guest of VM {turn.vm} answers again")


async def _address(turn: Turn) -> str:
    pod = turn.pod
    known = pod.status.pod_ip
    # The Node's own is told where it passes metrics on; it is no address of the guest.
    if pod.status.phase == status.RUNNING and known not in {"", turn.means.host_address}:
        return known
    try:
        return await turn.means.tart.ip(turn.vm, timedelta()) or ""
    except (errors.BramleyError, OSError) as error:
        logger.info("No address yet", vm=turn.vm, error=str(error))
        return ""


async def _shown(turn: Turn, address: str) -> str:
    """Return the address that others are told: the Node's, if it passes the guest's metrics on."""
    scraping = turn.means.scraping
    return address if scraping is None else await scraping.shown(turn.pod, turn.vm, address)


async def _tell_booted(turn: Turn) -> None:
    """Count the boot, unless an earlier agent began it, and tell the guest its address if it wants that."""
    means, began = turn.means, turn.notes.started_at
    if began is not None:
        seconds = means.clock.monotonic() - began
        means.metrics.vm_boot.of(fields.pool(turn.pod)).observe(seconds)
    means.memory.succeeded(turn.uid)
    means.slots.was_granted()
    try:
        await means.guests.tell_address(turn.pod, turn.vm)
    except (errors.BramleyError, OSError) as error:
        logger.warning("The guest does not learn its address", vm=turn.vm, error=str(error))


def _poll(turn: Turn) -> timedelta:
    return REST_POLL if turn.means.runs.is_begun(turn.vm) else UNWATCHED_POLL


def _not_beyond_deadline(turn: Turn, poll: timedelta) -> timedelta:
    left = observation.deadline_left(turn.subject.pod, turn.means)
    return poll if left is None else min(poll, max(left, timedelta(milliseconds=100)))


def _rounded(percent: int) -> int:
    """Return the tens, so that a pull is told ten times and not a hundred."""
    return percent - percent % _PERCENT_STEP
