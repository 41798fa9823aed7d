"""The runner Pods, their ServiceAccounts and the pools, from caches of the API server, and which Pods are to be drained.

A poll costs no call of the API server: it reads these caches. A Pod that the cache does not have yet is read once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bramley.api.core import ServiceAccount
from bramley.api.names import dispatch, labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.dispatch.authentication import RunnerIdentity
from bramley.dispatch.recovery import PodState
from bramley.kube.client import Client
from bramley.runtime.client import Selection
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics

OPERATOR_DRAIN = "operator drain"
POD_ENDED = "pod ended"
_ENDED = ("Succeeded", "Failed")

OnPod = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PolledPod:
    """A Pod that polls, and its pool."""

    pod: Pod
    pool: str

    @property
    def image(self) -> str:
        """Return the image of the VM."""
        return self.pod.spec.containers[0].image if self.pod.spec.containers else ""

    @property
    def host(self) -> str:
        """Return the Node of the Pod."""
        return self.pod.spec.node_name or ""

    @property
    def is_stamped(self) -> bool:
        """Return whether the Pod has the label of a claim."""
        return bool(self.pod.metadata.labels.get(labels.RUNNER_POOL_OWNER))

    @property
    def has_ended(self) -> bool:
        """Return whether the VM has stopped or is about to stop, and would take a job with it."""
        return _has_ended(self.pod)


@dataclass(slots=True)
class PodView:
    """The caches of one namespace; run the coroutines of `runnables` beside it."""

    kube: Client
    namespace: str
    clock: Clock
    pods: Informer[Pod]
    accounts: Informer[ServiceAccount]
    pools: Informer[RunnerPool]
    deadline: timedelta = timedelta(seconds=3)
    _listeners: list[OnPod] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        kube: Client,
        namespace: str,
        *,
        clock: Clock,
        rng: random.Random,
        metrics: RuntimeMetrics,
    ) -> PodView:
        """Return the view of a namespace, with its informers."""
        runners = Selection.of(namespace, labels={labels.RUNNER: labels.TRUE})
        owned = Selection.of(namespace, labels=labels.RUNNER_POOL)
        view = cls(
            kube,
            namespace,
            clock,
            Informer(Pod, kube, clock=clock, rng=rng, metrics=metrics, selection=runners),
            Informer(ServiceAccount, kube, clock=clock, rng=rng, metrics=metrics, selection=owned),
            Informer(
                RunnerPool,
                kube,
                clock=clock,
                rng=rng,
                metrics=metrics,
                selection=Selection.of(namespace),
            ),
        )
        view.pods.on_change(view._on_pod)
        view.pools.on_change(view._on_pool)
        return view

    def runnables(self) -> tuple[Callable[[], Coroutine[Any, Any, object]], ...]:
        """Return the loops of the informers."""
        return self.pods.run, self.accounts.run, self.pools.run

    @property
    def is_synced(self) -> bool:
        """Return whether every cache has been filled once."""
        return all(each.synced.is_set() for each in (self.pods, self.accounts, self.pools))

    async def wait_synced(self) -> None:
        """Wait until every cache has been filled once."""
        for informer in (self.pods, self.accounts, self.pools):
            await informer.synced.wait()

    def on_drain_change(self, listener: OnPod) -> None:
        """Call the listener with the uid of each Pod whose poll may have another answer now."""
        self._listeners.append(listener)

    async def get(self, identity: RunnerIdentity) -> PolledPod:
        """Return the Pod of a token; Unauthorized if it, or its ServiceAccount, does not exist or belongs to no pool."""
        account = self.accounts.cache.find(Key(identity.namespace, identity.pod_name))
        if account is None:
            account = await self._read(ServiceAccount, identity)
        pod = self.pods.cache.find(Key(identity.namespace, identity.pod_name))
        if pod is None or pod.uid != identity.pod_uid:
            pod = await self._read(Pod, identity)
        if pod.uid != identity.pod_uid:
            raise errors.Unauthorized(f"the token is bound to an earlier Pod {pod.name}")
        # Of the ServiceAccount and not of the Pod, which its agent may change.
        pool = account.metadata.labels.get(labels.RUNNER_POOL, "")
        if not pool:
            raise errors.Unauthorized(f"the ServiceAccount {account.name} belongs to no pool")
        return PolledPod(pod, pool)

    async def _read(self, kind: type[Any], identity: RunnerIdentity) -> Any:
        try:
            kube = self.kube.within(self.deadline)
            return await kube.get(kind, identity.pod_name, namespace=identity.namespace)
        except errors.NotFound:
            name = kind.resource.kind
            raise errors.Unauthorized(f"{name} {identity.pod_name} does not exist") from None
        except errors.Unavailable:
            raise
        except errors.BramleyError as error:
            # This server was refused and not its caller, which would end at 401 and 403.
            raise errors.ApiUnavailable(str(error)) from error

    def drain_reason(self, polled: PolledPod) -> str:
        """Return why the Pod is to shut down, or an empty text.

        A stale image alone is no reason: the pool controller marks as many Pods as its cap allows. An unknown pool is none either.
        """
        found = polled.pod.metadata.labels
        if polled.has_ended:
            return POD_ENDED
        if found.get(labels.OPERATOR_DRAIN) == labels.TRUE:
            return OPERATOR_DRAIN
        pool = self.find_pool(polled.pool)
        if pool is None or found.get(labels.DRAIN_ELIGIBLE) != labels.TRUE:
            return ""
        return dispatch.DRAIN_IMAGE_STALE if polled.image != target_image(pool) else ""

    def find_pool(self, name: str) -> RunnerPool | None:
        """Return a pool, or None if it is unknown."""
        return self.pools.cache.find(Key(self.namespace, name))

    def find_pod(self, name: str) -> Pod | None:
        """Return a Pod of the cache."""
        return self.pods.cache.find(Key(self.namespace, name))

    def pods_of(self, pool: str) -> Iterator[Pod]:
        """Yield the Pods of a pool."""
        for pod in self.pods.cache.all(namespace=self.namespace):
            if pod.metadata.labels.get(labels.RUNNER_POOL) == pool:
                yield pod

    async def pod_state(self, name: str, uid: str) -> PodState:
        """Return what the API server reports of a Pod. Only ALIVE may come from the cache, which is no evidence of an end."""
        cached = self.find_pod(name)
        if cached is not None and cached.uid == uid and not _has_ended(cached):
            return PodState.ALIVE
        try:
            pod = await self.kube.within(self.deadline).get(Pod, name, namespace=self.namespace)
        except errors.NotFound:
            return PodState.GONE
        except errors.BramleyError:
            return PodState.UNKNOWN
        if pod.uid != uid:
            return PodState.GONE
        return PodState.ENDED if _has_ended(pod) else PodState.ALIVE

    def _on_pod(self, _key: Key, old: Pod | None, new: Pod | None) -> None:
        # Most changes of Pods are heartbeats of their status, which change no answer.
        if old is None or (new is not None and old.metadata.labels == new.metadata.labels):
            return
        for listener in self._listeners:
            listener(old.uid)

    def _on_pool(self, key: Key, old: RunnerPool | None, new: RunnerPool | None) -> None:
        if old is not None and new is not None and target_image(old) == target_image(new):
            return
        for pod in self.pods_of(key.name):
            if pod.metadata.labels.get(labels.DRAIN_ELIGIBLE) == labels.TRUE:
                for listener in self._listeners:
                    listener(pod.uid)


def _has_ended(pod: Pod) -> bool:
    return pod.deleting or pod.status.phase in _ENDED


def target_image(pool: RunnerPool) -> str:
    """Return the image that Pods of a pool are to have; during a judged roll it differs from the one of the specification."""
    return pool.status.target_image or pool.spec.image
