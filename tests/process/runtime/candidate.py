"""A candidate for leadership: `candidate.py KUBECONFIG IDENTITY LEASE RETRY` keeps writing its name into a ConfigMap.

Both times are in seconds. It ends with status 3 when it lost the lease, and with 0 after SIGTERM; its log goes to stderr.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta

from prometheus_client import CollectorRegistry

from bramley.api.core import ConfigMap
from bramley.base import errors, log
from bramley.base.clock import SystemClock
from bramley.kube.config_loader import connect
from bramley.runtime.controller import Controller
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.outcome import CheckAgain, Outcome

NAMESPACE = "default"
CONFIG_MAP = "leader-record"
LEASE = "candidates"


@dataclass(frozen=True, slots=True)
class RecordReconciler:
    """Writes its own name and epoch into the ConfigMap, with the resourceVersion that it observed."""

    manager: Manager
    identity: str

    async def reconcile(self, record: ConfigMap) -> Outcome:
        leadership = self.manager.leadership
        epoch = str(leadership.epoch if leadership else 0)
        await self.manager.kube.merge_patch(
            ConfigMap,
            record.name,
            {"data": {"writer": self.identity, "epoch": epoch}},
            namespace=NAMESPACE,
            resource_version=record.metadata.resource_version,
        )
        return CheckAgain(timedelta(milliseconds=20), "writing again")


async def main(kubeconfig: str, identity: str, *seconds: str) -> int:
    lease, retry = (timedelta(seconds=float(each)) for each in seconds)
    times = {"lease": lease, "renew_deadline": lease * 2 / 3, "retry": retry}
    async with connect(kubeconfig) as client:
        manager = Manager(
            client,
            clock=SystemClock(),
            rng=random.Random(identity),
            registry=CollectorRegistry(),
            settings=ManagerSettings(
                election=LeaderElectionSettings(NAMESPACE, LEASE, identity, **times)
            ),
        )
        reconciler = RecordReconciler(manager, identity)
        manager.add(
            Controller(reconciler).for_kind(ConfigMap, fields={"metadata.name": CONFIG_MAP})
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.stop)
        try:
            await manager.run()
        except errors.LeaseLost:
            return 3
    return 0


if __name__ == "__main__":
    log.configure(form="json")
    sys.exit(asyncio.run(main(*sys.argv[1:])))
