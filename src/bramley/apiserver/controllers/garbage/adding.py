"""Adds the garbage collector to a manager; it belongs to no single kind, so it runs beside the workers."""

from __future__ import annotations

import random
from datetime import timedelta
from functools import partial

from bramley.apiserver.controllers.garbage import collector
from bramley.apiserver.controllers.garbage.collector import Collector, Task
from bramley.apiserver.controllers.garbage.following import Following
from bramley.apiserver.controllers.timings import Timings
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.manager import Manager
from bramley.runtime.queue import QueueMeter, WorkQueue

NAME = "garbage-collector-controller"
_LONGEST = timedelta(seconds=1000)


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Collect what no owner needs any more."""
    rng = random.Random(0)
    queue = WorkQueue[Task](
        clock=clock,
        rng=rng,
        meter=QueueMeter(manager.metrics, NAME),
        backoff=Backoff(timings.garbage_retry, _LONGEST),
    )
    following = Following(client, clock, rng, manager.metrics, timings.garbage_discovery_period)
    made = Collector(client, queue, manager.recorder(NAME), following)
    following.wake = made.wake
    manager.add_runnable(partial(collector.run, made))
