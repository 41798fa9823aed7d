"""The dispatch server without a socket: its parts wired together, its HTTP application, and the loops that run beside it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from bramley.api import conditions
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.dispatch import pool_matching
from bramley.dispatch.accounts import Accounts
from bramley.dispatch.authentication import Authentication
from bramley.dispatch.forge import Forge
from bramley.dispatch.handout import Handouts
from bramley.dispatch.inbox_worker import InboxWorker
from bramley.dispatch.job_explanation import (
    Explanation,
    ForgeBlock,
    JobFacts,
    explain,
    next_pod_due,
    typical_boot,
)
from bramley.dispatch.metrics import DispatchMetrics, QueueGauges
from bramley.dispatch.pod_view import PodView
from bramley.dispatch.polls import Polls
from bramley.dispatch.pool_matching import PoolLabels, Route
from bramley.dispatch.recovery import Recovery
from bramley.dispatch.server.job_routes import JobRoutes
from bramley.dispatch.server.runner_routes import RunnerRoutes
from bramley.dispatch.server.webhook_routes import WebhookRoutes
from bramley.dispatch.stopped_pods import StoppedPods
from bramley.dispatch.store.records import Timeline
from bramley.dispatch.store.store import Store
from bramley.kube.client import Client
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics

logger = log.get(__name__)

# From creation to the first poll with the image on the host, for explanations about a pool that has measured none.
_TYPICAL_BOOT = timedelta(seconds=45)


@dataclass(frozen=True, slots=True)
class Peers:
    """What the server talks to."""

    store: Store
    forge: Forge
    kube: Client
    namespace: str


@dataclass(slots=True)
class Dispatcher:
    """One dispatch server; `run` it and serve `application`."""

    peers: Peers
    accounts: Accounts
    clock: Clock
    rng: random.Random
    registry: CollectorRegistry
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    view: PodView = field(init=False)
    polls: Polls = field(init=False)
    inbox: InboxWorker = field(init=False)
    recovery: Recovery = field(init=False)
    metrics: DispatchMetrics = field(init=False)
    application: Starlette = field(init=False)
    _handouts: Handouts = field(init=False)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _claims_doubtful: asyncio.Event = field(default_factory=asyncio.Event)
    _routes_changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Wire the parts."""
        peers = self.peers
        self.metrics = DispatchMetrics(self.registry, self.clock)
        self.view = PodView.of(
            peers.kube,
            peers.namespace,
            clock=self.clock,
            rng=self.rng,
            metrics=RuntimeMetrics(self.registry),
        )
        self._handouts = Handouts(
            store=peers.store,
            forge=peers.forge,
            kube=peers.kube,
            view=self.view,
            clock=self.clock,
            policy=lambda: self.accounts.policy,
            observer=self.metrics,
            group=self._group,
        )
        self.polls = Polls(peers.store, self.view, self._handouts, self.clock)
        self.metrics.export_held_polls(lambda: self.polls.held)
        self.metrics.export_accounts_file(lambda: self.accounts.is_valid)
        self.inbox = InboxWorker(peers.store, self.route, self.clock, self.metrics)
        self.recovery = Recovery(
            store=peers.store,
            forge=peers.forge,
            pods=self.view,
            routing=self.route,
            has_pool=self._has_pool,
            clock=self.clock,
            on_recovered=self.metrics.recovery.inc,
        )
        self.view.on_drain_change(self.polls.pod_changed)
        self.view.pools.on_change(self._on_pool)
        self.accounts.on_change = self._on_accounts
        self.application = Starlette(routes=[*self._routes()])

    def close(self) -> None:
        """End the held polls, so that the server can stop."""
        self.polls.close()

    async def run(self) -> None:
        """Run the loops until cancelled; hand-outs that have begun are cancelled too, and continue after a restart."""
        async with self._group as group:
            for runnable in self._loops():
                group.create_task(runnable())
            await self.view.wait_synced()
            # Only now: without the pools every job would be without one.
            group.create_task(self.inbox.run())
            self.ready.set()

    def route(self, requested: Sequence[str], _account: str) -> Route:
        """Return the pool of a job with these labels."""
        pools = [
            PoolLabels(
                pool.name,
                pool.spec.dispatch_label,
                self.accounts.current.aliases_of(pool.name),
                tuple(pool.spec.runner_labels),
            )
            for pool in self.view.pools.cache.all(namespace=self.peers.namespace)
            if not pool.deleting
        ]
        priority = self.accounts.policy.priority(requested)
        return pool_matching.route(requested, pools, priority=priority)

    async def explain(self, timeline: Timeline) -> Explanation:
        """Explain what a job waits for."""
        job = timeline.job
        pods = list(self.view.pods_of(job.pool)) if job.pool else []
        starting = [pod for pod in pods if not _is_ready(pod) and not pod.deleting]
        created = [at for pod in starting if (at := pod.metadata.creation_timestamp) is not None]
        pool = self.view.find_pool(job.pool) if job.pool else None
        boot = typical_boot(pool.status.boot_seconds if pool is not None else (), _TYPICAL_BOOT)
        now = self.clock.now()
        facts = JobFacts(
            now=now,
            timeline=timeline,
            position=await self.peers.store.queue_position(job.id),
            account_limit=self.accounts.policy.limits.get(job.facts.account),
            pool_exists=pool is not None,
            idle_pods=sum(_is_idle(pod) for pod in pods),
            starting_pods=len(starting),
            next_pod_at=next_pod_due(created, boot, now),
            roll_phase=pool.status.roll_phase if pool is not None else "",
            block=self._block(job.facts.account),
        )
        return explain(facts)

    def _block(self, account: str) -> ForgeBlock | None:
        block = self._handouts.blocks.get(account)
        if block is None:
            return None
        return ForgeBlock(block.until, block.message, block.reason == "RateLimited")

    def _routes(self) -> Iterator[Any]:
        peers = self.peers
        authentication = Authentication(peers.kube, peers.namespace, self.clock)
        stops = StoppedPods(
            peers.store, peers.kube, peers.namespace, self.clock, self._claims_doubtful.set
        )
        runners = RunnerRoutes(
            authentication,
            self.polls,
            peers.store,
            stops,
            self.clock,
            self.metrics,
            self.metrics.refused_requests.inc,
        )
        webhooks = WebhookRoutes(
            peers.store,
            peers.forge,
            self.inbox,
            self.clock,
            self.metrics.webhooks,
            self.metrics.refused_requests.inc,
        )
        people = JobRoutes(
            peers.store,
            authentication,
            self.explain,
            self.clock,
            self.metrics.refused_requests.inc,
        )
        yield from (*runners.routes(), *webhooks.routes(), *people.routes())

    def _loops(self) -> Iterator[Callable[[], Coroutine[Any, Any, object]]]:
        yield from self.view.runnables()
        yield self.accounts.run
        yield self.recovery.run
        yield self._check_doubtful_claims
        yield self._reroute
        gauges = QueueGauges(
            self.registry,
            self.peers.store,
            self.view,
            self.clock,
            lambda: self.accounts.policy,
        )
        yield gauges.run

    async def _check_doubtful_claims(self) -> None:
        await _call_when_set(self._claims_doubtful, self.recovery.check_claims)

    async def _reroute(self) -> None:
        await _call_when_set(self._routes_changed, self.recovery.reroute_jobs)

    def _has_pool(self, name: str) -> bool:
        pool = self.view.find_pool(name)
        return pool is not None and not pool.deleting

    def _on_pool(self, _key: Key, old: RunnerPool | None, new: RunnerPool | None) -> None:
        # Most changes are those of the status, after which every job has the same route.
        if _selection(old) != _selection(new):
            self._routes_changed.set()

    def _on_accounts(self) -> None:
        self._routes_changed.set()
        # A limit may have been raised.
        self.peers.store.wakeups.wake_all()


async def _call_when_set(
    event: asyncio.Event, call: Callable[[], Coroutine[Any, Any, object]]
) -> None:
    while True:
        await event.wait()
        event.clear()
        try:
            await call()
        except errors.BramleyError as error:
            # The periodic pass of the recovery does the same later.
            logger.warning("Failed to repair queue", reason=error.reason)


def _selection(pool: RunnerPool | None) -> object:
    """Return what decides which jobs a pool accepts."""
    if pool is None or pool.deleting:
        return None
    return pool.spec.dispatch_label, pool.spec.runner_labels


def _is_ready(pod: Pod) -> bool:
    return conditions.is_true(pod.status.conditions, "Ready")


def _is_idle(pod: Pod) -> bool:
    found = pod.metadata.labels
    return _is_ready(pod) and not pod.deleting and not found.get(labels.RUNNER_POOL_OWNER)
