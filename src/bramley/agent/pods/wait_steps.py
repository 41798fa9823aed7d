"""The steps that only observe and publish: what a Pod waits for, and the state of its running VM."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from bramley.agent import pod_fields
from bramley.agent.images import image_requests
from bramley.agent.ledger import LedgerUnavailable
from bramley.agent.pods import observation, status
from bramley.agent.pods.context import EXPECTED_ERRORS, PodContext
from bramley.api.names import agent, events
from bramley.base import log
from bramley.runtime.outcome import CheckAgain, Outcome, Settled

logger = log.get(__name__)

# A guest gets its address within seconds; each check starts a process.
BOOT_POLL = timedelta(seconds=1)
# An exit enqueues the Pod by itself, so this poll is only a safety net.
MONITOR_POLL = timedelta(seconds=30)
# The exit of a VM without one of our supervisors is found only by polling.
UNSUPERVISED_POLL = timedelta(seconds=2)
SLOT_POLL = timedelta(seconds=5)
IMAGE_POLL = timedelta(minutes=1)
LATE_CLONE_POLL = timedelta(seconds=30)
_MIN_POLL = timedelta(milliseconds=100)
_PERCENT_STEP = 10


async def idle(context: PodContext) -> Outcome:
    """Settle a Pod that has ended."""
    context.deps.states.forget(context.uid)
    return Settled()


async def await_predecessor(context: PodContext) -> Outcome:
    """Wait until the resources of an earlier Pod of the same name are removed."""
    message = "the VM of an earlier Pod of the same name is being removed"
    await context.publish_waiting(events.CREATING_VM, message)
    return CheckAgain(BOOT_POLL, message)


async def await_slot(context: PodContext) -> Outcome:
    """Wait until another VM has ended."""
    deps = context.deps
    claimed = deps.slots.claimed(observation.claiming_uids(deps))
    own = sorted((deps.slots.occupied() | claimed) - {context.vm})
    taken = ", ".join([*own, *deps.slots.others()])
    message = f"all VM slots of this host are taken: {taken}"
    if context.state.record_once(agent.AWAITING_SLOT):
        context.record_warning(agent.AWAITING_SLOT, message)
    await context.publish_waiting(agent.AWAITING_SLOT, message)
    return CheckAgain(SLOT_POLL, message)


async def await_image(context: PodContext) -> Outcome:
    """Wait for the image and publish the progress, or why it failed."""
    image_state, image = context.image, pod_fields.container(context.pod).image
    if isinstance(image_state, image_requests.Failed):
        return await context.report_failure(image_state.error, image_state.retry_after)
    context.state.is_failing = False
    percent = image_state.percent if isinstance(image_state, image_requests.Pulling) else None
    message = f"Pulling image {image}{'' if percent is None else f', {_rounded(percent)} %'}"
    if context.state.record_once(message):
        context.record_event(events.PULLING_IMAGE, message)
    await context.publish_waiting(events.PULLING_IMAGE, message)
    return CheckAgain(IMAGE_POLL, message)


async def await_retry(context: PodContext) -> Outcome:
    """Wait for the end of the backoff."""
    return CheckAgain(context.deps.states.backoff_left(context.uid), "backing off after a failure")


async def await_late_clone(context: PodContext) -> Outcome:
    """Wait until no clone that a killed agent started can appear any more."""
    return CheckAgain(LATE_CLONE_POLL, f"a clone of {context.vm} may still appear")


async def await_shutdown(context: PodContext) -> Outcome:
    """Wait for a guest that shuts down; its exit enqueues the Pod."""
    context.deps.exit_watcher.watch(context.vm, context.key)
    requested_at = context.state.shutdown_requested_at or 0.0
    grace = pod_fields.grace(context.pod).total_seconds()
    remaining = timedelta(seconds=requested_at + grace - context.deps.clock.monotonic())
    return CheckAgain(min(max(remaining, _MIN_POLL), _poll(context)), "the guest shuts down")


async def monitor(context: PodContext) -> Outcome | None:
    """Publish that the VM runs, and its address; observe again once it has certainly none for too long."""
    deps, state = context.deps, context.state
    deps.exit_watcher.watch(context.vm, context.key)
    deps.guests.renew_token(context.pod, context.vm)
    is_new = not state.address
    if is_new:
        # Published before the address is looked up, because that takes a second.
        await _publish_running(context)
    if context.ref.pod is None:
        return Settled()
    address = state.address = state.address or await _address(context)
    if address:
        await _publish_address(context, address)
    if address and is_new and context.ref.pod is not None:
        await _record_boot(context)
    if observation.boot_timed_out(context.ref, context.record, deps):
        # Decided again, on a live read.
        return None
    if observation.is_boot_overdue(context.ref, context.record, deps):
        _warn_about_kept_vm(context)
    poll = _poll(context) if address else BOOT_POLL
    left = observation.deadline_left(context.ref.pod, deps)
    return CheckAgain(poll if left is None else min(poll, max(left, _MIN_POLL)), "the VM runs")


def _warn_about_kept_vm(context: PodContext) -> None:
    """Record once why a VM without a known address is kept: a job may run in it."""
    state, vm = context.state, context.vm
    if not state.record_once(events.BOOT_TIMED_OUT):
        return
    after = f"after {context.deps.boot_timeout.total_seconds():g} s"
    message = f"adopted VM {vm} has no address {after} and is kept: delete the Pod to end it"
    if not state.lacks_address:
        message = f"the address of VM {vm} is unknown {after}, and it is kept: check tart ip on the host, or delete the Pod ({state.address_error})"
    context.record_warning(events.BOOT_TIMED_OUT, message)


async def _publish_address(context: PodContext, address: str) -> None:
    deps, record = context.deps, context.record
    if not record.had_address:
        try:
            # Before it is published: whatever the server or a cache shows later, this VM has had an address.
            deps.ledger.put(msgspec.structs.replace(record, had_address=True))
        except LedgerUnavailable as error:
            logger.warning("Address not recorded", vm=context.vm, error=str(error))
    proxy, ip = deps.metrics_proxy, address
    if proxy is not None:
        ip = await proxy.pod_address(context.pod, context.vm, address)
    await _publish_running(context, ip=ip)


async def _publish_running(context: PodContext, *, ip: str | None = None) -> None:
    """Publish that the VM runs, and record an event when its guest stops responding or responds again."""
    was_unresponsive = status.is_unresponsive(context.pod)
    is_responsive = context.deps.liveness.is_responsive(context.vm)
    # The published result of an earlier agent is kept until this agent has its own.
    is_unresponsive = was_unresponsive if is_responsive is None else not is_responsive
    running = status.running(
        context.pod,
        context.status_facts(),
        started_at=context.record.started_at,
        ip=ip,
        is_unresponsive=is_unresponsive,
    )
    await context.publish_status(running)
    if context.ref.pod is None or status.is_unresponsive(context.pod) == was_unresponsive:
        return
    if is_unresponsive:
        context.record_warning(events.GUEST_SILENT, status.unresponsive_message(context.vm))
    else:
        context.record_event(events.GUEST_ANSWERS, f"The guest of VM {context.vm} responds again")


async def _address(context: PodContext) -> str:
    pod = context.pod
    published = pod.status.pod_ip
    # The Node's own address is published where it proxies the guest's metrics; it is not the guest's.
    if pod.status.phase == status.RUNNING and published not in {"", context.deps.host_address}:
        return published
    try:
        found = await context.deps.tart.ip(context.vm, timedelta())
    except EXPECTED_ERRORS as error:
        logger.info("VM address unknown", vm=context.vm, error=str(error))
        context.state.lacks_address, context.state.address_error = False, str(error)
        return ""
    context.state.lacks_address = found is None
    return found or ""


async def _record_boot(context: PodContext) -> None:
    """Measure the boot, unless an earlier agent started it, and give the guest its address if a variable refers to it."""
    deps, started_at = context.deps, context.state.started_at
    if started_at is not None:
        seconds = deps.clock.monotonic() - started_at
        deps.metrics.vm_boot.of(pod_fields.pool(context.pod)).observe(seconds)
    deps.states.reset_failures(context.uid)
    deps.slots.record_start(context.vm)
    try:
        await deps.guests.write_address(context.pod, context.vm)
    except EXPECTED_ERRORS as error:
        logger.warning("Guest address not written", vm=context.vm, error=str(error))


def _poll(context: PodContext) -> timedelta:
    return MONITOR_POLL if context.deps.runs.exists(context.vm) else UNSUPERVISED_POLL


def _rounded(percent: int) -> int:
    """Return the percentage in steps of ten, so that a pull records ten events and not a hundred."""
    return percent - percent % _PERCENT_STEP
