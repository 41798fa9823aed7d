"""The three clusters that the stories are played on: ours in process and over HTTP, and the real control plane.

`python -m tests.contract.node_loss.playing TARGET FOLDER` plays on one that takes its time, and writes the ends into the folder.
"""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bramley.app import embedded
from bramley.base import virtual_time
from bramley.base.clock import SystemClock
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from tests.contract.kube_client.targets import wait_for
from tests.contract.node_loss import timings
from tests.contract.node_loss.stage import Stage, TooLate
from tests.contract.node_loss.stories import perform
from tools.kube import control_plane, programs

Ends = dict[str, Any]
ENDS = "ends.json"
WITHOUT_KUBECTL = "without-kubectl"
RECORDED = Path(__file__).with_name("ends.yaml")
TRIES = 4
# An agent that is later than this may be taken for lost, and waits of the stories for over.
TOO_LATE_SECONDS = timings.GRACE.total_seconds() / 2


class Played(NamedTuple):
    """How all stories ended, and how late the latest heartbeat came."""

    ends: Ends
    latest: float

    @property
    def counts(self) -> bool:
        """Tell whether this play can be judged: it was in time, or what it should be all the same."""
        said = json.loads(json.dumps(self.ends, default=repr))
        recorded = yaml.safe_load(RECORDED.read_text())
        is_right = all(recorded.get(name) == said[name] for name in said)
        return bool(said) and (self.latest < TOO_LATE_SECONDS or is_right)


def judged(play: Callable[[int], Played]) -> Ends:
    """Play, and once more on another cluster each time that the machine was too busy for agents to be heard in time."""
    for number in range(1, TRIES + 1):
        played = play(number)
        if played.counts:
            break
        print(f"play {number} is void: a heartbeat came after {played.latest:.1f} s")  # noqa: T201
    if not played.ends:
        raise SystemExit("the machine is too busy for these stories")
    return played.ends


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


def over_http(folder: Path, number: int, *, has_kubectl: bool) -> Played:
    """Play on our server in a process of its own; what needs kubectl only where there is one."""
    own = folder / f"play-{number}"
    own.mkdir()
    with _serving(own) as kubeconfig:
        return asyncio.run(_behind(kubeconfig, has_kubectl=has_kubectl))


def real(_number: int) -> Played:
    """Play on a real control plane that nobody else uses."""
    with control_plane.running(timings.REAL, purpose="node-loss") as cluster:
        return asyncio.run(_behind(cluster.kubeconfig, has_kubectl=True))


async def _behind(kubeconfig: Path, *, has_kubectl: bool) -> Played:
    transport = HttpTransport(config_loader.load(kubeconfig, environment={}))
    async with Client(transport) as client:
        kubectl = (str(programs.path_of("kubectl")), f"--kubeconfig={kubeconfig}")
        stage = Stage(client, SystemClock(), kubectl if has_kubectl else ())
        try:
            ends = await perform(stage)
        except* TooLate:
            ends = {}
        return Played(ends, stage.latest)


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
    has_kubectl = WITHOUT_KUBECTL not in words
    ours = functools.partial(over_http, folder, has_kubectl=has_kubectl)
    ends = judged(real if target == "real" else ours)
    (folder / ENDS).write_text(json.dumps(ends, default=repr))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
