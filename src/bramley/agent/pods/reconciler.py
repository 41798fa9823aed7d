"""The reconciler of Pods: observe, decide, execute one step, and repeat until it has to wait.

Nothing is carried from one step to the next except what the next observation finds again, so a sync may be cut off anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.agent.images import image_requests
from bramley.agent.ledger import VmState
from bramley.agent.pods import observation, provision_steps, teardown_steps, wait_steps
from bramley.agent.pods.context import (
    EXPECTED_ERRORS,
    PodContext,
    PodDeps,
    PodRef,
    StepFunction,
    pod_ref,
)
from bramley.agent.pods.decision import Observation, Step, decide
from bramley.api.pod import Pod
from bramley.base import errors, log
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain, Outcome

logger = log.get(__name__)

STEP_FUNCTIONS: Mapping[Step, StepFunction] = {
    Step.IDLE: wait_steps.idle,
    Step.AWAIT_PREDECESSOR: wait_steps.await_predecessor,
    Step.AWAIT_SLOT: wait_steps.await_slot,
    Step.AWAIT_IMAGE: wait_steps.await_image,
    Step.AWAIT_RETRY: wait_steps.await_retry,
    Step.AWAIT_SHUTDOWN: wait_steps.await_shutdown,
    Step.AWAIT_LATE_CLONE: wait_steps.await_late_clone,
    Step.REJECT: provision_steps.reject,
    Step.EXPIRE: provision_steps.expire,
    Step.ADD_FINALIZER: provision_steps.add_finalizer,
    Step.ADOPT: provision_steps.adopt,
    Step.CLAIM: provision_steps.claim,
    Step.CLONE: provision_steps.clone,
    Step.START: provision_steps.start,
    Step.MONITOR: wait_steps.monitor,
    Step.DISCARD_FAILED_START: provision_steps.discard_failed_start,
    Step.ABANDON_BOOT: provision_steps.abandon_boot,
    Step.SHUT_DOWN_GUEST: teardown_steps.shut_down_guest,
    Step.STOP_VM: teardown_steps.stop_vm,
    Step.RECORD_EXIT: teardown_steps.record_exit,
    Step.REPORT_EXIT: teardown_steps.report_exit,
    Step.DELETE_VM: teardown_steps.delete_vm,
    Step.REMOVE_DATA: teardown_steps.remove_data,
    Step.REMOVE_RUN: teardown_steps.remove_run,
    Step.REMOVE_RECORD: teardown_steps.remove_record,
    Step.REMOVE_FINALIZER: teardown_steps.remove_finalizer,
    Step.FINISH_DELETION: teardown_steps.finish_deletion,
}

# A cached Pod may be older than what an earlier agent wrote. These steps fail a Pod, or create, adopt or discard a VM, so they
# are decided again on a live read before they are executed.
_NEEDS_LIVE_READ = frozenset({Step.REJECT, Step.EXPIRE, Step.ADOPT, Step.CLAIM, Step.ABANDON_BOOT})
# An error of these steps is published in the Pod's status.
_PROVISIONING = frozenset({Step.CLAIM, Step.CLONE, Step.START})
# The whole life of a Pod has about twenty steps, so more in one sync would be an endless loop.
_MAX_STEPS = 40


@dataclass(frozen=True, slots=True)
class PodReconciler:
    """Runs each Pod of this Node as a VM, and removes everything of it afterwards."""

    deps: PodDeps
    # Uids of the Pods with a sync in progress. The orphan search must not remove a record below a sync that began
    # before its Pod was gone.
    in_progress: set[str] = field(default_factory=set)

    async def reconcile(self, pod: Pod) -> Outcome:
        """Execute all steps that are possible now."""
        return await self.sync(pod_ref(pod, self.deps.ledger))

    def forget(self, key: Key) -> None:
        """Do nothing for a Pod that is gone: the orphan search finds the record that it left."""
        logger.debug("Pod is gone", pod=str(key))

    async def sync(self, ref: PodRef) -> Outcome:
        """Observe, decide and act until there is an outcome."""
        if ref.uid in self.in_progress:
            return CheckAgain(timedelta(seconds=1), "another sync of this Pod is in progress")
        # No await between the check and this: the controller and the orphan search run in the same loop.
        self.in_progress.add(ref.uid)
        try:
            return await self._run_steps(PodContext(self.deps, ref))
        finally:
            self.in_progress.discard(ref.uid)

    async def _run_steps(self, context: PodContext) -> Outcome:
        for _ in range(_MAX_STEPS):
            step = self._next_step(context)
            if step in _NEEDS_LIVE_READ and not context.is_live_read:
                # Then decided again: the live Pod may be finished, deleted or replaced.
                await self._read_live(context)
                continue
            logger.debug("Executing Pod step", step=step, vm=context.vm)
            outcome = await self._execute(context, step)
            if outcome is not None:
                return outcome
        return CheckAgain(timedelta(seconds=1), "the Pod needs more steps")

    def _next_step(self, context: PodContext) -> Step:
        try:
            observed = observation.observe(context.ref, self.deps)
        except OSError as error:
            raise errors.Unavailable(f"host state is not readable: {error}") from error
        if _needs_image(observed):
            request = image_requests.request_of(context.pod)
            key, trigger = context.key, self.deps.trigger
            context.image = self.deps.images.request(
                request, on_change=lambda: trigger.enqueue(key)
            )
            observed = dataclasses.replace(observed, image=observation.image_of(context.image))
        return decide(observed)

    async def _execute(self, context: PodContext, step: Step) -> Outcome | None:
        try:
            return await STEP_FUNCTIONS[step](context)
        except EXPECTED_ERRORS as error:
            is_refused = isinstance(error, errors.Refused)
            if step in _PROVISIONING or (step is Step.ADD_FINALIZER and is_refused):
                return await context.report_failure(error)
            if not is_refused:
                raise
            # Retried, although refusals are not retried elsewhere: a permission may be granted just after the Pod was
            # bound, and a missing program may be installed; neither changes the Pod.
            logger.warning("Pod step refused", step=step, vm=context.vm, error=str(error))
            return CheckAgain(self.deps.states.record_failure(context.uid), str(error))

    async def _read_live(self, context: PodContext) -> None:
        key = context.key
        try:
            live = await self.deps.kube.get(Pod, key.name, namespace=key.namespace)
        except errors.NotFound:
            context.replace_pod(None)
        else:
            context.replace_pod(live)
        context.is_live_read = True


def _needs_image(observed: Observation) -> bool:
    is_active = not (observed.is_gone or observed.is_deleting or observed.phase.is_finished)
    return is_active and observed.record is VmState.CLAIMED
