"""A process with only the endpoints of an agent: the real server, its log source and its stats.

It finds Pods in `pods.json` and VMs in the ledger, both read again each time, so that a test plays the rest of the agent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from bramley.agent import platform
from bramley.agent.guest.folders import UserData
from bramley.agent.ledger import Ledger, VmRecord
from bramley.agent.processes import SystemPrograms
from bramley.agent.serving.pod_logs import PodLogs
from bramley.agent.serving.server import Server, Settings
from bramley.agent.serving.stats import StatsProvider
from bramley.api.core import Pod
from bramley.base.clock import SystemClock
from bramley.kube.config_loader import connect


class Stage:
    """The Pods and records that the test has written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pod(self, namespace: str, name: str) -> Pod | None:
        pods = msgspec.json.decode((self._folder / "pods.json").read_bytes(), type=list[Pod])
        found = (each for each in pods if (each.namespace, each.name) == (namespace, name))
        return next(found, None)

    def records(self) -> dict[str, VmRecord]:
        return dict(Ledger(self._folder / "ledger").vms())


async def serve(node: str, folder: Path, authority: Path) -> None:
    stage, clock = Stage(folder), SystemClock()
    data = UserData(folder / "data")
    logs = PodLogs(folder / "logs", data, stage.pod, stage.records, clock)
    host = platform.current(tart_home=folder / "tart")
    stats = StatsProvider(node, host, stage.records, lambda _vm: os.getpid(), stage.pod, clock)
    settings = Settings(node=node, folder=folder / "serving", client_authority=authority)
    async with connect(folder / "kubeconfig") as kube, asyncio.TaskGroup() as group:
        programs = SystemPrograms(os.environ)
        server = Server(settings, kube=kube, logs=logs, stats=stats, programs=programs, clock=clock)
        group.create_task(logs.run())
        group.create_task(stats.run())
        group.create_task(server.run())
        await server.ready.wait()
        print(server.port, flush=True)  # noqa: T201 - what the test waits for


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
