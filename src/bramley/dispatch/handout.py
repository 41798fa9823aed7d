"""Give jobs to Pods that poll: claim a job, stamp the Pod, register its runner, hand its configuration out.

The order is the safety: the claim is stored before the label is written, so a crash leaves a claim that this Pod finds again; the label
is written before the runner is registered, so no roll deletes a Pod that has a runner; the configuration is stored before it is
sent, so a Pod that asks again gets the same one. A hand-out runs in its own task and continues if the guest disconnects; a second poll of the Pod waits
for the same task.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from bramley.api import names
from bramley.api.names import labels
from bramley.api.pod import Pod as ApiPod
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.dispatch.fair_share import Policy
from bramley.dispatch.forge import Forge, NewRunner, RunnerState
from bramley.dispatch.pod_view import PodView, PolledPod
from bramley.dispatch.store.records import Claim, Job, Pod
from bramley.dispatch.store.store import Store
from bramley.kube.client import Client

T = TypeVar("T")

logger = log.get(__name__)

MAX_RUNNER_NAME = 64
# Another replica that stamped the claim has this long to store the runner before its claim is taken over.
MINT_TIMEOUT = timedelta(seconds=20)
# A Pod that asks again has GitHub asked for its runner at most this often.
_ONLINE_CHECK = timedelta(seconds=10)
_MAX_CHECKED = 10_000
_REFUSED_BLOCK = timedelta(minutes=1)
_UNAVAILABLE_BLOCK = timedelta(seconds=5)
_MAX_BLOCK = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A job for a Pod, and the configuration that starts its runner."""

    job_id: int
    owner: str
    jit: Secret


@dataclass(frozen=True, slots=True)
class Block:
    """An account whose jobs are not handed out for a while, because the forge refuses or limits its runners."""

    until: datetime
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Outcome:
    job: HandedOut | None = None
    error: Exception | None = None


class Observer(Protocol):
    """Counts what happens to claims."""

    def claimed(self, claim: Claim, job: Job) -> None:
        """Count a new claim."""
        ...

    def claim_failed(self, pool: str, outcome: str) -> None:
        """Count a claim that was given back."""
        ...


@dataclass(slots=True)
class Handouts:
    """Answers the polls of Pods; one task per Pod at a time, in `group`."""

    store: Store
    forge: Forge
    kube: Client
    view: PodView
    clock: Clock
    policy: Callable[[], Policy]
    observer: Observer
    group: asyncio.TaskGroup
    api_deadline: timedelta = timedelta(seconds=3)
    blocks: dict[str, Block] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[_Outcome]] = field(default_factory=dict)
    _checked: dict[int, datetime] = field(default_factory=dict)

    async def offer(self, polled: PolledPod) -> HandedOut | None:
        """Return a job for this Pod, or None; raise Gone if it has had its runner, Unauthorized if the Pod vanished.

        Cancelling the call leaves the hand-out running.
        """
        uid = polled.pod.uid
        task = self._tasks.get(uid)
        if task is None:
            task = self.start(self._captured(polled))
            self._tasks[uid] = task
            task.add_done_callback(lambda _: self._tasks.pop(uid, None))
        # Not awaited itself: cancelling this call must not cancel the hand-out.
        await asyncio.wait((task,))
        if task.cancelled():
            raise errors.Unavailable("the server is stopping")
        outcome = task.result()
        if outcome.error is not None:
            raise outcome.error
        return outcome.job

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that must not raise; Unavailable if the server is stopping."""
        try:
            return self.group.create_task(coroutine)
        except RuntimeError:
            coroutine.close()
            raise errors.Unavailable("the server is stopping") from None

    def blocked_accounts(self) -> frozenset[str]:
        """Return the accounts that get nothing now."""
        now = self.clock.now()
        for account in [name for name, block in self.blocks.items() if block.until <= now]:
            del self.blocks[account]
        return frozenset(self.blocks)

    async def _captured(self, polled: PolledPod) -> _Outcome:
        # An exception would end the group, and with it the server.
        with errors.Captured() as captured:
            return _Outcome(await self._hand_out(polled))
        return _Outcome(error=captured.error)

    async def _hand_out(self, polled: PolledPod) -> HandedOut | None:
        pod = Pod(polled.pod.name, polled.pod.uid, polled.host, polled.image)
        now = self.clock.now()
        claim = await self.store.claim(
            pod, polled.pool, now, policy=self.policy(), excluded=self.blocked_accounts()
        )
        if claim is None:
            await self._clear_stamp(polled)
            return None
        if claim.job_id is None:
            return None
        job = (await self.store.timeline(claim.job_id)).job
        if claim.minted_at is not None:
            return await self._again(claim, job)
        if claim.stamped_at is None:
            self.observer.claimed(claim, job)
            return await self._stamp_and_mint(claim, job, polled)
        if (wait := claim.stamped_at + MINT_TIMEOUT - now) > timedelta():
            # Another replica registers the runner at this moment. If it does not, because it was killed, a held poll continues.
            self._wake_all_after(wait)
            return None
        return await self._take_over(claim, job, polled)

    async def _stamp_and_mint(self, claim: Claim, job: Job, polled: PolledPod) -> HandedOut | None:
        try:
            polled = await self._stamp_pod(polled, claim)
        except errors.BramleyError as error:
            # Without the label a roll may delete the Pod, so the job must not start on it.
            await self._give_back(claim, "stamp_failed")
            logger.warning("Failed to stamp Pod", pod=polled.pod.name, reason=error.reason)
            if isinstance(error, errors.NotFound | errors.Conflict):
                raise errors.Unauthorized(f"Pod {polled.pod.name} does not exist") from None
            return None
        if polled.has_ended:
            # The answer to the stamp is newer than the cache, which did not show the deletion yet.
            await self._give_back(claim, "pod_ended")
            return None
        name = runner_name(polled.pod.name)
        if not await self.store.stamp(claim.handle, name, self.clock.now()):
            # The label stays: another replica may continue with this claim. If it ended, the next poll clears the label.
            return None
        return await self._mint(claim, job, polled, name)

    async def _take_over(self, claim: Claim, job: Job, polled: PolledPod) -> HandedOut | None:
        """Continue after a process that stopped between the stamp and the storage of the runner."""
        name = runner_name(polled.pod.name)
        if not await self.store.restamp(claim.handle, claim.runner_name, name, self.clock.now()):
            return None
        await self._remove_runner(job, claim.runner_name)
        return await self._mint(claim, job, polled, name)

    async def _mint(self, claim: Claim, job: Job, polled: PolledPod, name: str) -> HandedOut | None:
        repository = job.facts.repository
        try:
            runner = await self.forge.create_runner(repository, name, self._labels(polled, job))
        except errors.BramleyError as error:
            self._block(claim.account, error)
            if isinstance(error, errors.Unavailable):
                # It may exist; without its configuration nothing can start it.
                await self._remove_runner(job, name)
            await self._give_back(claim, "mint_failed")
            await self._clear_stamp(polled)
            return None
        return await self._store_runner(claim, job, name, runner)

    async def _store_runner(
        self, claim: Claim, job: Job, name: str, runner: NewRunner
    ) -> HandedOut | None:
        now = self.clock.now()
        if await self.store.mint(claim.handle, name, runner.jit, runner.runner_id, now):
            return HandedOut(job.id, claim.account, runner.jit)
        # The job ended, or another replica has taken the claim over: this runner gets no guest.
        await self._remove_runner(job, name)
        return None

    async def _again(self, claim: Claim, job: Job) -> HandedOut | None:
        """Return the same configuration, unless the runner has come online since."""
        if await self._is_online(claim, job):
            await self.store.runner_online(claim.handle, self.clock.now())
            raise errors.Gone(f"the runner {claim.runner_name} is online")
        return HandedOut(job.id, claim.account, claim.jit) if claim.jit else None

    async def _is_online(self, claim: Claim, job: Job) -> bool:
        now = self.clock.now()
        checked = self._checked.get(claim.handle, claim.minted_at or now)
        if claim.runner_id is None or checked + _ONLINE_CHECK > now:
            return False
        self._checked[claim.handle] = now
        while len(self._checked) > _MAX_CHECKED:
            del self._checked[next(iter(self._checked))]
        try:
            state = await self.forge.runner_state(
                job.facts.repository, claim.runner_id, claim.runner_name
            )
        except errors.BramleyError:
            return False
        if state == RunnerState.OFFLINE:
            return False
        self._checked.pop(claim.handle, None)
        # A single-use runner that is not registered any more has had its job.
        return True

    async def _stamp_pod(self, polled: PolledPod, claim: Claim) -> PolledPod:
        # The uid is the precondition: a Pod of the same name that was created since has no claim.
        pod = await self._patch_owner(polled, label_value(claim.account), str(claim.handle))
        return PolledPod(pod, polled.pool)

    async def _clear_stamp(self, polled: PolledPod) -> None:
        """Remove the owner label of a Pod without a claim, so that rolls and scaling see an idle Pod again."""
        if not polled.is_stamped:
            return
        try:
            # Only of this version: if a claim was stamped since, the label is that claim's. The annotation makes each stamp another
            # version, also one of the same account.
            version = polled.pod.metadata.resource_version
            await self._patch_owner(polled, None, None, version=version)
        except errors.BramleyError as error:
            logger.debug("Kept owner label of Pod", pod=polled.pod.name, reason=error.reason)

    async def _patch_owner(
        self, polled: PolledPod, owner: str | None, claim: str | None, *, version: str | None = None
    ) -> ApiPod:
        written = {
            "labels": {labels.RUNNER_POOL_OWNER: owner},
            "annotations": {names.annotations.RUNNER_CLAIM: claim},
        }
        return await self.kube.within(self.api_deadline).merge_patch(
            ApiPod,
            polled.pod.name,
            {"metadata": written},
            namespace=polled.pod.namespace,
            uid=polled.pod.uid,
            resource_version=version,
        )

    async def _give_back(self, claim: Claim, outcome: str) -> None:
        self.observer.claim_failed(claim.pool, outcome)
        await self.store.release(claim.handle, outcome, self.clock.now())

    async def _remove_runner(self, job: Job, name: str) -> None:
        """Remove a runner whose configuration is lost; GitHub itself removes those that this cannot."""
        try:
            repository = job.facts.repository
            runner_id = await self.forge.find_runner(repository, name)
            if runner_id is not None:
                await self.forge.remove_runner(repository, runner_id)
        except errors.BramleyError as error:
            logger.warning("Failed to remove unused runner", runner=name, reason=error.reason)

    def _labels(self, polled: PolledPod, job: Job) -> list[str]:
        pool = self.view.find_pool(polled.pool)
        own = list(pool.spec.runner_labels) if pool is not None else []
        # GitHub compares labels without regard to case; the job's labels are among the pool's or select it.
        known = {label.lower() for label in own}
        return own + [label for label in job.facts.labels if label.lower() not in known]

    def _block(self, account: str, error: errors.BramleyError) -> None:
        wait = _REFUSED_BLOCK
        if isinstance(error, errors.RateLimited):
            wait = min(error.after, _MAX_BLOCK)
        elif isinstance(error, errors.Unavailable):
            wait = _UNAVAILABLE_BLOCK
        self.blocks[account] = Block(self.clock.now() + wait, error.reason, str(error)[:512])
        logger.warning("Failed to register runner", account=account, reason=error.reason)
        # The jobs of the account are still queued, and nothing else wakes a poll for them.
        self._wake_all_after(wait)

    def _wake_all_after(self, wait: timedelta) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(wait.total_seconds() + 0.01, self.store.wakeups.wake_all)


def runner_name(pod_name: str) -> str:
    """Return a new name for the runner of a Pod; each registration has another, so that none collides with an earlier one."""
    suffix = f"-{secrets.token_hex(4)}"
    return pod_name[: MAX_RUNNER_NAME - len(suffix)].rstrip("-.") + suffix


def label_value(account: str) -> str:
    """Return an account as the value of a label, which is shorter and has fewer characters than a login may have."""
    cleaned = "".join(
        each if each.isascii() and (each.isalnum() or each in "-_.") else "-" for each in account
    )
    return cleaned[:63].strip("-_.") or "unknown"
