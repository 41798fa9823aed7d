"""The writes of the pool controller to Pods, ServiceAccounts and Nodes.

Each write is independent of the others: those that fail are returned after all were tried. Deletions carry uid and version, so
a Pod that was claimed since the decision survives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from bramley.api import names
from bramley.api.core import Node
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors, log
from bramley.runners import pod_template
from bramley.runners.decision import Decision
from bramley.runners.pod_plan import PlannedPod
from bramley.runners.pod_template import TemplateSettings
from bramley.runners.pods import RunnerPod, pod_name, slot_text
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

_CONCURRENT_WRITES = 16


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """A write that failed, with the reason for conditions."""

    reason: str
    subject: str
    error: errors.BramleyError

    @property
    def message(self) -> str:
        """Return what failed and why."""
        return f"{self.subject}: {self.error}"


@dataclass(frozen=True, slots=True)
class _Write:
    """A write, what it is for, and the reason to show if it fails."""

    run: Callable[[], Awaitable[None]]
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class PodActions:
    """Creates, marks and deletes Pods."""

    kube: FencedKube
    pods: Cache[Pod]
    template: TemplateSettings

    async def perform(self, pool: RunnerPool, decision: Decision) -> list[FailedWrite]:
        """Do what was decided; return what failed."""
        plan = decision.plan
        # In this order: the hosts that have the target image must go to the Pods with it.
        return await _all(
            [
                *(self._creation(pool, each, decision.avoid) for each in plan.create),
                *(self._marking(pool, pod, labels.TRUE) for pod in plan.mark),
                *(self._marking(pool, pod, None) for pod in plan.unmark),
                *(self._deletion(pool, each.pod) for each in plan.delete),
            ]
        )

    async def retire(self, pool: RunnerPool, pods: Iterable[RunnerPod]) -> list[FailedWrite]:
        """Delete idle Pods; return what failed."""
        return await _all([self._deletion(pool, pod) for pod in pods])

    async def request_images(self, requests: Mapping[str, str]) -> list[FailedWrite]:
        """Request images of hosts, by the names of their Nodes; an empty text removes the request. Return what failed."""
        return await _all(
            [
                _Write(partial(self._request, node, text), f"Node {node}", "RequestFailed")
                for node, text in requests.items()
            ]
        )

    def _creation(self, pool: RunnerPool, planned: PlannedPod, avoid: tuple[str, ...]) -> _Write:
        name = pod_name(pool, planned.slot, planned.counter)
        return _Write(partial(self._create, pool, planned, avoid), f"Pod {name}", "CreateFailed")

    def _marking(self, pool: RunnerPool, pod: RunnerPod, value: str | None) -> _Write:
        return _Write(partial(self._mark, pool, pod, value), f"Pod {pod.name}", "MarkFailed")

    def _deletion(self, pool: RunnerPool, pod: RunnerPod) -> _Write:
        return _Write(partial(self._delete, pool, pod), f"Pod {pod.name}", "DeleteFailed")

    async def _request(self, node: str, text: str) -> None:
        annotations = {names.annotations.STAGE_IMAGES: text or None}
        try:
            await self.kube.merge_patch(Node, node, {"metadata": {"annotations": annotations}})
        except errors.NotFound:
            logger.debug("Node is gone", node=node)

    async def _create(self, pool: RunnerPool, planned: PlannedPod, avoid: tuple[str, ...]) -> None:
        # The account first: the agent requests a token for it as soon as it sees the Pod.
        try:
            await self.kube.create(pod_template.service_account(pool, planned))
        except errors.AlreadyExists:
            logger.debug("ServiceAccount exists already", slot=planned.slot)
        try:
            await self.kube.create(pod_template.pod(pool, planned, self.template, avoid=avoid))
        except errors.AlreadyExists:
            await self._adopt(pool, planned)

    async def _adopt(self, pool: RunnerPool, planned: PlannedPod) -> None:
        """Accept the Pod that an earlier attempt created; refuse one that only happens to have the same name."""
        name = pod_name(pool, planned.slot, planned.counter)
        try:
            existing = await self.kube.get(Pod, name, namespace=pool.namespace)
        except errors.NotFound:
            raise errors.Conflict(f"Pod {name} was deleted while it was created") from None
        slot = existing.metadata.annotations.get(names.annotations.RUNNER_SLOT)
        if slot != slot_text(planned.slot, planned.counter):
            await self._skip_name(pool, planned)
            return
        # The next decision must see it.
        self.kube.record_write(existing)

    async def _skip_name(self, pool: RunnerPool, planned: PlannedPod) -> None:
        """Free the slot, so that its next Pod has another name."""
        fresh = await self.kube.get(RunnerPool, pool.name, namespace=pool.namespace)
        slots = list(fresh.status.slots)
        if planned.slot >= len(slots) or slots[planned.slot].counter != planned.counter:
            return
        slots[planned.slot] = msgspec.structs.replace(
            slots[planned.slot], active=False, pending=None
        )
        await self.kube.merge_patch(
            RunnerPool,
            pool.name,
            # A merge patch replaces the whole list.
            {"status": {"slots": msgspec.to_builtins(slots)}},
            namespace=pool.namespace,
            subresource="status",
            resource_version=fresh.metadata.resource_version,
            uid=pool.uid,
        )

    async def _mark(self, pool: RunnerPool, pod: RunnerPod, value: str | None) -> None:
        patch = {"metadata": {"labels": {labels.DRAIN_ELIGIBLE: value}}}
        # A Pod without a Node may be marked although no host is chosen yet; only if it is still so, because it could be bound
        # to a host without the image meanwhile. Others are marked in any version: dispatch may stamp the owner at the same time.
        version = None if pod.node else pod.resource_version
        try:
            await self.kube.merge_patch(
                Pod,
                pod.name,
                patch,
                namespace=pool.namespace,
                uid=pod.uid,
                resource_version=version,
            )
        except (errors.NotFound, errors.Conflict):
            logger.debug("Pod to mark is gone, or was bound to a Node meanwhile", pod=pod.name)

    async def _delete(self, pool: RunnerPool, pod: RunnerPod) -> None:
        cached = self.pods.find(Key(pool.namespace or "", pod.name))
        if cached is None or cached.uid != pod.uid:
            return
        try:
            await self.kube.delete(cached, resource_version=pod.resource_version)
        except errors.NotFound:
            return
        except errors.Conflict:
            # It has changed: perhaps it got a job. The event of that change decides again.
            logger.debug("Pod has changed and is not deleted", pod=pod.name)


def raise_any(failed: Sequence[FailedWrite]) -> None:
    """Raise the errors of writes that failed, if there are any."""
    if failed:
        raise ExceptionGroup("some writes failed", [each.error for each in failed])


async def _all(writes: Iterable[_Write]) -> list[FailedWrite]:
    """Run writes, a bounded number at a time and started in order; return what failed."""
    failed: list[FailedWrite] = []
    semaphore = asyncio.Semaphore(_CONCURRENT_WRITES)

    async def run(write: _Write) -> None:
        async with semaphore:
            try:
                await write.run()
            except errors.BramleyError as error:
                failed.append(FailedWrite(write.reason, write.subject, error))

    async with asyncio.TaskGroup() as group:
        for write in writes:
            group.create_task(run(write))
    return failed
