"""The three clusters that the stories are played on: ours in process and over HTTP, and the real control plane.

`python -m tests.contract.node_loss.playing TARGET FOLDER` plays on one that takes its time, and writes the ends into the folder.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bramley.app import embedded
from bramley.base import virtual_time
from bramley.base.clock import SystemClock
from bramley.kube import connecting
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from tests.contract.kube_client.targets import wait_for
from tests.contract.node_loss import timings
from tests.contract.node_loss.stage import Stage
from tests.contract.node_loss.stories import perform
from tools.kube import control_plane, programs

Ends = dict[str, Any]
ENDS = "ends.json"
WITHOUT_KUBECTL = "without-kubectl"


def in_process() -> Ends:
    """Play in memory and in no time."""
    return virtual_time.run(_in_process())


async def _in_process() -> Ends:
    clock = virtual_time.clock()
    async with (
        embedded.running(
            clock=clock, controllers=True, timings=timings.OURS, settings=timings.API
        ) as (api, token),
        Client(api.transport(token), clock=clock) as client,
    ):
        return await perform(Stage(client, clock))


def over_http(folder: Path, *, has_kubectl: bool) -> Ends:
    """Play on our server in a process of its own; what needs kubectl only where there is one."""
    with _serving(folder) as kubeconfig:
        return asyncio.run(_behind(kubeconfig, has_kubectl=has_kubectl))


def real() -> Ends:
    """Play on a real control plane that nobody else uses."""
    with control_plane.running(timings.REAL, purpose="node-loss") as cluster:
        return asyncio.run(_behind(cluster.kubeconfig, has_kubectl=True))


async def _behind(kubeconfig: Path, *, has_kubectl: bool) -> Ends:
    transport = HttpTransport(connecting.find(kubeconfig, environment={}))
    async with Client(transport) as client:
        kubectl = (str(programs.path_of("kubectl")), f"--kubeconfig={kubeconfig}")
        return await perform(Stage(client, SystemClock(), kubectl if has_kubectl else ()))


@contextmanager
def _serving(folder: Path) -> Iterator[Path]:
    log = folder / "log"
    command = [sys.executable, "-m", "tests.contract.node_loss.server", str(folder)]
    root = Path(__file__).parents[3]
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output, cwd=root) as process,
    ):
        try:
            wait_for(folder / "ready", process, log)
            yield folder / "kubeconfig"
        finally:
            process.terminate()
            process.wait(timeout=180)


def main(target: str, folder: Path, *words: str) -> None:
    """Play on one of the two that take their time, and write down how it ended; an error is written as its text."""
    ends = (
        real() if target == "real" else over_http(folder, has_kubectl=WITHOUT_KUBECTL not in words)
    )
    (folder / ENDS).write_text(json.dumps(ends, default=repr))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
