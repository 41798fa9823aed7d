"""The pool controllers of `bramley up`: they run in its process, on a sample pool that uses the simulated Macs.

They use the dispatch server of the same process, if there is one: it drains the idle Pods of a roll.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.api import crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.names import runners
from bramley.api.runner_pool import RunnerPool
from bramley.app import sample_images
from bramley.app.restarted_manager import RestartedManager
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runners import controllers
from bramley.runners.dispatch_client import DispatchClient, DispatchSettings
from bramley.runners.pod_template import TemplateSettings
from bramley.runtime.manager import Manager, ManagerSettings

logger = log.get(__name__)

Connect = Callable[[], Client]

# Commands of users need no flag for the namespace.
NAMESPACE = "default"
SAMPLE_NAME = "macos"
_FIELD_MANAGER = "bramley"
_DRAIN = timedelta(seconds=5)


def sample_pool(replicas: int) -> dict[str, Any]:
    """Return the sample pool; its runners are so small that each Mac has place for two."""
    return {
        "apiVersion": RunnerPool.resource.api_version,
        "kind": RunnerPool.resource.kind,
        "metadata": {"name": SAMPLE_NAME},
        "spec": {
            "image": sample_images.FIRST,
            "fleetSelector": sample_images.FLEET,
            "dispatchLabel": runners.SAMPLE_DISPATCH_LABEL,
            "runnerLabels": ["self-hosted", "macOS", "ARM64"],
            "replicas": replicas,
            "podCPUMilli": 4000,
            "podMemoryMB": 6144,
            "rollout": {"maxConcurrentPercent": 34},
        },
    }


@dataclass(slots=True)
class PoolControllers:
    """The pool controllers of one server; `run` until `stop`. After a bug they start again, while the server keeps serving."""

    connect: Connect
    clock: Clock
    rng: random.Random
    # How many runners the sample pool gets, and the file that records that it was created; 0 creates none.
    sample_replicas: int = 0
    sample_mark: Path | None = None
    # Where guests and controllers reach the dispatch server.
    dispatch_url: str = ""
    dispatch: DispatchSettings = field(default_factory=DispatchSettings)
    _managers: RestartedManager = field(init=False)

    def __post_init__(self) -> None:
        self._managers = RestartedManager("pools", self._opened, self.rng)

    @property
    def ready(self) -> asyncio.Event:
        """Return the event that is set once they run."""
        return self._managers.ready

    def stop(self) -> None:
        """Begin to stop."""
        self._managers.stop()

    async def run(self) -> None:
        """Install the definitions, create the sample pool, and reconcile pools until stopped."""
        await self._managers.run()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Manager]:
        async with self.connect() as kube, DispatchClient(self.dispatch) as dispatch:
            await install_definitions(kube)
            await self._create_sample(kube)
            registry = CollectorRegistry()
            manager = Manager(
                kube,
                clock=self.clock,
                rng=self.rng,
                registry=registry,
                settings=ManagerSettings(drain=_DRAIN, tune_gc=False),
            )
            controllers.add(
                manager,
                controllers.Settings(NAMESPACE, TemplateSettings(self.dispatch_url)),
                clock=self.clock,
                registry=registry,
                signals=dispatch if self.dispatch.scaling_signals_url else None,
                sessions=dispatch if self.dispatch.sessions_url else None,
            )
            yield manager

    async def _create_sample(self, kube: Client) -> None:
        """Create the sample pool, once: one that was deleted stays deleted."""
        mark = self.sample_mark
        if not self.sample_replicas or mark is None or mark.exists():
            return
        try:
            body = sample_pool(self.sample_replicas)
            await kube.create_wire(RunnerPool.resource, body, namespace=NAMESPACE)
        except errors.AlreadyExists:
            logger.info("Sample pool already exists", pool=SAMPLE_NAME)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


async def install_definitions(kube: Client) -> None:
    """Install the CustomResourceDefinitions of this version, or update those of an earlier one."""
    for manifest in crds.manifests():
        name = manifest["metadata"]["name"]
        await kube.apply(
            CustomResourceDefinition, name, manifest, manager=_FIELD_MANAGER, force=True
        )
