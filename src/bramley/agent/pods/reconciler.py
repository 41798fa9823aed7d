"""Reconciles Pods: look, decide, take one step, and look again until there is nothing to do but wait.

Nothing is kept from one step to the next but what a look finds again, so a reconcile may end anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.agent.images import image_requests
from bramley.agent.ledger import VmState
from bramley.agent.pods import context, observation, provision_steps, teardown_steps, wait_steps
from bramley.agent.pods.context import TROUBLE, Act, Means, PodRef, Turn
from bramley.agent.pods.decision import Observation, Step, decide
from bramley.api.pod import Pod
from bramley.base import errors, log
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain, Outcome

logger = log.get(__name__)

ACTS: Mapping[Step, Act] = {
    Step.REST: wait_steps.rest,
    Step.AWAIT_PREDECESSOR: wait_steps.await_predecessor,
    Step.AWAIT_SLOT: wait_steps.await_slot,
    Step.AWAIT_IMAGE: wait_steps.await_image,
    Step.AWAIT_RETRY: wait_steps.await_retry,
    Step.AWAIT_END: wait_steps.await_end,
    Step.AWAIT_REMAINS: wait_steps.await_remains,
    Step.REJECT: provision_steps.reject,
    Step.EXPIRE: provision_steps.expire,
    Step.HOLD: provision_steps.hold,
    Step.ADOPT: provision_steps.adopt,
    Step.CLAIM: provision_steps.claim,
    Step.CLONE: provision_steps.clone,
    Step.START: provision_steps.start,
    Step.FOLLOW: wait_steps.follow,
    Step.REGRET: provision_steps.regret,
    Step.ASK: teardown_steps.ask,
    Step.STOP: teardown_steps.stop,
    Step.END: teardown_steps.end,
    Step.REPORT: teardown_steps.report,
    Step.DELETE_VM: teardown_steps.delete_vm,
    Step.REMOVE_DATA: teardown_steps.remove_data,
    Step.FORGET_RUN: teardown_steps.forget_run,
    Step.DROP_RECORD: teardown_steps.drop_record,
    Step.RELEASE: teardown_steps.release,
    Step.COMPLETE: teardown_steps.complete,
}

# A cache may be older than what an earlier agent wrote, so these are decided on the server's own word only.
_ON_THE_SERVERS_WORD = frozenset({Step.REJECT, Step.EXPIRE, Step.ADOPT, Step.CLAIM})
# Of these people are told why there is no VM yet.
_PROVISIONING = frozenset({Step.CLAIM, Step.CLONE, Step.START})
# A life has about twenty steps; more in one turn would be a circle.
_MOST_STEPS = 40


@dataclass(frozen=True, slots=True)
class PodReconciler:
    """Makes each Pod of this Node a VM, and leaves nothing of it behind."""

    means: Means
    # The Pods that somebody is at: a record must not be cleared away under a turn that has begun before its Pod was gone.
    busy: set[str] = field(default_factory=set)

    async def reconcile(self, pod: Pod) -> Outcome:
        """Take the steps that can be taken now."""
        return await self.take_turn(context.pod_ref(pod, self.means.ledger))

    def forget(self, key: Key) -> None:
        """Leave a Pod that is gone to the search for orphans; it finds the record that the Pod has left."""
        logger.debug("Pod is gone", pod=str(key))

    async def take_turn(self, about: PodRef) -> Outcome:
        """Look, decide and act until an outcome is there."""
        if about.uid in self.busy:
            return CheckAgain(timedelta(seconds=1), "somebody is at this Pod")
        self.busy.add(about.uid)
        try:
            return await self._step_on(Turn(self.means, about))
        finally:
            self.busy.discard(about.uid)

    async def _step_on(self, turn: Turn) -> Outcome:
        for _ in range(_MOST_STEPS):
            step = self._next(turn)
            if step in _ON_THE_SERVERS_WORD and not turn.is_confirmed:
                await self._confirm(turn)
                continue
            logger.debug("Step", step=step, vm=turn.vm)
            outcome = await self._act(turn, step)
            if outcome is not None:
                return outcome
        return CheckAgain(timedelta(seconds=1), "there is more to do")

    def _next(self, turn: Turn) -> Step:
        try:
            seen = observation.observe(turn.subject, self.means)
        except OSError as error:
            raise errors.Unavailable(f"the host does not tell: {error}") from error
        if _needs_image(seen):
            request = image_requests.request_of(turn.pod)
            key, bell = turn.key, self.means.bell
            turn.answer = self.means.images.want(request, on_change=lambda: bell.enqueue(key))
            seen = dataclasses.replace(seen, image=observation.image_of(turn.answer))
        return decide(seen)

    async def _act(self, turn: Turn, step: Step) -> Outcome | None:
        try:
            return await ACTS[step](turn)
        except TROUBLE as error:
            if step in _PROVISIONING or (step is Step.HOLD and isinstance(error, errors.Refused)):
                return await turn.failed(error)
            if not isinstance(error, errors.Refused):
                raise
            # A right may come a moment after the Pod, and a program may be installed again: no change of the Pod tells.
            logger.warning("Step refused", step=step, vm=turn.vm, error=str(error))
            return CheckAgain(self.means.memory.failed(turn.uid), str(error))

    async def _confirm(self, turn: Turn) -> None:
        key = turn.key
        try:
            live = await self.means.kube.get(Pod, key.name, namespace=key.namespace)
        except errors.NotFound:
            turn.see(None)
        else:
            turn.see(live)
        turn.is_confirmed = True


def _needs_image(seen: Observation) -> bool:
    is_wanted = not (seen.is_gone or seen.is_deleting or seen.phase.is_finished)
    return is_wanted and seen.record is VmState.CLAIMED
