"""Reaps runner Pods that have ended and ServiceAccounts without a Pod; reports stopped Pods to dispatch first.

Its own controllers, so that a dispatch server that is away delays no pool. A Pod is only reaped once its pool has freed the
slot: until then the pool could not tell a Pod that has ended from one that was never created.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bramley.api import names
from bramley.api.core import ServiceAccount
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.runners.dispatch_client import Sessions
from bramley.runners.metrics import ReaperMetrics
from bramley.runners.pods import ended_at, is_terminal, parse_slot
from bramley.runtime.cache import Cache
from bramley.runtime.events import LruCache
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

# A Pod is not kept for longer than this because its end cannot be reported.
_REPORT_DEADLINE = timedelta(minutes=10)
_REPORT_PERIOD = timedelta(seconds=30)
_SLOT_PERIOD = timedelta(seconds=5)
# Another controller may just be creating the Pod of an account that has no slot.
_ORPHAN_AGE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class PodReaper:
    """Reports Pods that have ended or are being deleted, and deletes those that have ended."""

    kube: FencedKube
    pools: Cache[RunnerPool]
    sessions: Sessions | None
    metrics: ReaperMetrics
    clock: Clock
    # Bounded: a report that is repeated after it was dropped here does no harm.
    _reported: LruCache[bool] = field(default_factory=LruCache)

    async def reconcile(self, pod: Pod) -> Outcome:
        """Report and delete one Pod."""
        pool = pool_of(pod, self.pools)
        if pool is None or not (pod.deleting or is_terminal(pod)):
            return Settled()
        try:
            await self._report(pod)
        except errors.Refused as error:
            # No event follows when the token, or the server's settings, are corrected.
            logger.warning("Report of stopped Pod refused", pod=pod.name, error=str(error))
            return CheckAgain(_REPORT_PERIOD, "dispatch refused the report")
        if pod.deleting:
            return Settled()
        if not pool.deleting and not is_slot_freed(pod, pool):
            return CheckAgain(_SLOT_PERIOD, "the pool has not freed the slot yet")
        logger.info("Deleting Pod that has ended", pod=pod.name, phase=pod.status.phase)
        try:
            await self.kube.delete(pod)
        except (errors.NotFound, errors.Conflict):
            logger.debug("Pod is gone already", pod=pod.name)
        return Settled()

    async def _report(self, pod: Pod) -> None:
        if self.sessions is None or self._reported.find(pod.uid):
            return
        ended = ended_at(pod, self.clock.now())
        try:
            await self.sessions.pod_stopped(pod.name, ended)
        except errors.BramleyError as error:
            self.metrics.failed_reports.inc()
            if self.clock.now() - ended < _REPORT_DEADLINE:
                raise
            logger.warning("Pod is deleted without a report", pod=pod.name, error=str(error))
        self._reported.put(pod.uid, True)


@dataclass(frozen=True, slots=True)
class ServiceAccountReaper:
    """Deletes the ServiceAccounts of Pods that are gone or being deleted."""

    kube: FencedKube
    pools: Cache[RunnerPool]
    pods: Cache[Pod]
    clock: Clock

    async def reconcile(self, account: ServiceAccount) -> Outcome:
        """Delete one ServiceAccount once its Pod does not need it any more."""
        key = Key(account.namespace or "", account.name)
        pool = pool_of(account, self.pools)
        if pool is None or account.deleting:
            return Settled()
        pod = self.pods.find(key)
        if pod is not None and not pod.deleting:
            return Settled()
        if pod is None and (wait := self._wait(account, pool)) is not None:
            return wait
        # From the server: a cache that lags behind must not take the identity of a Pod that was just created.
        if pod is None and await self._exists(account):
            return CheckAgain(_SLOT_PERIOD, "the cache does not show the Pod yet")
        try:
            await self.kube.delete(account)
        except (errors.NotFound, errors.Conflict):
            logger.debug("ServiceAccount is gone already", account=account.name)
        return Settled()

    def _wait(self, account: ServiceAccount, pool: RunnerPool) -> Outcome | None:
        if _slot(account)[0] < 0:
            age = self.clock.now() - (account.metadata.creation_timestamp or _EPOCH)
            return None if age >= _ORPHAN_AGE else CheckAgain(_ORPHAN_AGE - age, "no Pod yet")
        is_freed = pool.deleting or is_slot_freed(account, pool)
        return None if is_freed else CheckAgain(_ORPHAN_AGE, "its Pod is being created")

    async def _exists(self, account: ServiceAccount) -> bool:
        try:
            await self.kube.get(Pod, account.name, namespace=account.namespace)
        except errors.NotFound:
            return False
        return True


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def pool_of(obj: Pod | ServiceAccount, pools: Cache[RunnerPool]) -> RunnerPool | None:
    """Return the macOS pool that an object belongs to."""
    name = obj.metadata.labels.get(labels.RUNNER_POOL, "")
    pool = pools.find(Key(obj.namespace or "", name))
    is_owned = pool is not None and any(
        owner.uid == pool.uid for owner in obj.metadata.owner_references
    )
    return pool if pool is not None and is_owned and pool.spec.os == labels.DARWIN else None


def _slot(obj: Pod | ServiceAccount) -> tuple[int, int]:
    return parse_slot(obj.metadata.annotations.get(names.annotations.RUNNER_SLOT, ""))


def is_slot_freed(obj: Pod | ServiceAccount, pool: RunnerPool) -> bool:
    """Return whether the pool has noticed the end of a Pod; one that another controller created need not be noticed."""
    slot, counter = _slot(obj)
    if slot < 0:
        return True
    slots = pool.status.slots
    if slot >= len(slots):
        return False
    current = slots[slot]
    return current.counter > counter or (current.counter == counter and not current.active)
