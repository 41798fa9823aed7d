"""What `bramley rollout`, `explain` and `status` read from a cluster, and the annotations that `rollout` writes.

`spec.image` is never written: it belongs to the owner of the pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.api import names
from bramley.api.core import Event, Node
from bramley.api.meta import Object, moment
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.app.agent_access import Cluster
from bramley.base import errors
from bramley.base.explanation import EventNote, Explanation
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.machines.explanation_facts import AnyMac
from bramley.runners.explanation import pods, pools, rolls
from bramley.runners.explanation.pods import PodFacts
from bramley.runners.explanation.pools import PoolFacts
from bramley.runners.explanation.rolls import RollProgress
from bramley.runners.hosts import fleet_of

# A command of people fails soon instead of retrying for long.
_DEADLINE = timedelta(seconds=15)
_EVENTS = 8
_INTERVAL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Fleets:
    """All hosts, pools and runner Pods of a cluster."""

    nodes: tuple[Node, ...]
    pools: tuple[RunnerPool, ...]
    pods: tuple[Pod, ...]
    # Machines and MacHosts; None if the server has neither kind.
    macs: tuple[AnyMac, ...] | None = None

    def hosts_of(self, pool: RunnerPool) -> int:
        """Return how many hosts the fleet of a pool has."""
        return sum(fleet_of(node) == pool.spec.fleet_selector for node in self.nodes)

    def progress(self) -> list[RollProgress]:
        """Return the progress of each pool."""
        ordered = sorted(self.pools, key=lambda each: (each.namespace or "", each.name))
        return [rolls.progress(each, hosts=self.hosts_of(each)) for each in ordered]


@dataclass(frozen=True, slots=True)
class Queries:
    """A client, and the namespace that names without one belong to."""

    kube: Client
    namespace: str

    async def pool(self, name: str) -> RunnerPool:
        """Return a pool; the error for one that does not exist names those that do."""
        try:
            return await self.kube.get(RunnerPool, name, namespace=self.namespace)
        except errors.NotFound:
            known = pools.known_pools(await self._all_pools())
        raise errors.BadConfiguration(
            f"pool {name} does not exist in namespace {self.namespace}; existing pools: {known}"
        )

    async def progress(self, name: str) -> RollProgress:
        """Return the progress of a pool."""
        pool = await self.pool(name)
        fleet = {labels.FLEET: pool.spec.fleet_selector}
        nodes = (await self.kube.list(Node, labels=fleet)).items
        return rolls.progress(pool, hosts=sum(fleet_of(node) is not None for node in nodes))

    async def fleets(self) -> Fleets:
        """Return everything about pools, in all namespaces."""
        nodes = (await self.kube.list(Node, labels=labels.FLEET)).items
        runner_pods = (await self.kube.list(Pod, labels={labels.RUNNER: labels.TRUE})).items
        return Fleets(tuple(nodes), tuple(await self._all_pools()), tuple(runner_pods))

    async def explain_pool(self, name: str, *, now: datetime) -> Explanation:
        """Return the explanation of a pool."""
        pool = await self.pool(name)
        fleets = await self.fleets()
        same = [each for each in fleets.pools if each.namespace == pool.namespace]
        events = await self.events(pool)
        facts = PoolFacts(pool, same, fleets.pods, fleets.nodes, events)
        return pools.explain_pool(facts, now=now)

    async def explain_pod(self, name: str, *, now: datetime) -> Explanation:
        """Return the explanation of a Pod."""
        try:
            pod = await self.kube.get(Pod, name, namespace=self.namespace)
        except errors.NotFound:
            message = f"Pod {name} does not exist in namespace {self.namespace}"
            raise errors.BadConfiguration(message) from None
        facts = PodFacts(
            pod,
            await self._pool_of(pod),
            (await self.kube.list(Node)).items,
            (await self.kube.list(Pod, fields="spec.nodeName!=")).items,
            await self.events(pod),
        )
        return pods.explain_pod(facts, now=now)

    async def annotate(self, pool: RunnerPool, **changes: str | None) -> None:
        """Set or, with None, remove annotations of exactly this pool, by the names of their constants."""
        annotations = {getattr(names.annotations, key): value for key, value in changes.items()}
        await self.kube.merge_patch(
            RunnerPool,
            pool.name,
            {"metadata": {"annotations": annotations}},
            namespace=pool.namespace,
            uid=pool.uid,
        )

    async def undo(self, pool: RunnerPool) -> None:
        """Undo the image in the spec of a pool, also if it was undone before and then set again.

        The controller carries out an annotation once, so that of the earlier undo is removed first.
        """
        image = pool.spec.image
        if pool.status.undone_image == image:
            await self.annotate(pool, ROLLOUT_UNDO=None)
            await self._until_forgotten(pool.name, image)
        await self.annotate(pool, ROLLOUT_UNDO=image, ROLLOUT_PROMOTE=None)

    async def _until_forgotten(self, name: str, image: str) -> None:
        try:
            async with asyncio.timeout(_DEADLINE.total_seconds()):
                while True:
                    if (await self.pool(name)).status.undone_image != image:
                        return
                    await asyncio.sleep(_INTERVAL_SECONDS)
        except TimeoutError:
            raise errors.TimedOut(
                f"the controller has not acted on pool {name} within {_DEADLINE.total_seconds():.0f} s; "
                "check that bramley runners runs and leads"
            ) from None

    async def _all_pools(self) -> list[RunnerPool]:
        try:
            return (await self.kube.list(RunnerPool)).items
        except errors.NotFound as error:
            raise errors.BadConfiguration(
                "the server has no RunnerPools; install them with: bramley crds | kubectl apply -f -"
            ) from error

    async def _pool_of(self, pod: Pod) -> RunnerPool | None:
        name = pod.metadata.labels.get(labels.RUNNER_POOL)
        if not name:
            return None
        try:
            return await self.kube.get(RunnerPool, name, namespace=pod.namespace)
        except errors.NotFound:
            return None

    async def events(self, obj: Object) -> tuple[EventNote, ...]:
        """Return the last events about an object."""
        fields = f"involvedObject.kind={obj.resource.kind},involvedObject.name={obj.name}"
        found = (await self.kube.list(Event, namespace=self.namespace, fields=fields)).items
        notes = [_event(each) for each in found if each.involved_object.uid in {obj.uid, ""}]
        dated = [note for note in notes if note.last_at is not None]
        return tuple(sorted(dated, key=lambda note: str(note.last_at))[-_EVENTS:])


def _event(event: Event) -> EventNote:
    exact = (event.series.last_observed_time if event.series else None) or event.event_time
    last_at = event.last_timestamp or (moment(exact) if exact else event.first_timestamp)
    return EventNote(type=event.type, reason=event.reason, message=event.message, last_at=last_at)


@asynccontextmanager
async def connected(cluster: Cluster, namespace: str | None) -> AsyncIterator[Queries]:
    """Connect to a cluster; without a namespace, that of the kubeconfig's context counts."""
    config = config_loader.load(cluster.kubeconfig, cluster.context)
    async with Client(HttpTransport(config)) as kube:
        yield Queries(kube.within(_DEADLINE), namespace or config.namespace or "default")
