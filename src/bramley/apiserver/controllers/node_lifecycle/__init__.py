"""Node lifecycle: what becomes of Nodes that are not heard of, and of the Pods on them.

`monitor` notices silence, says Unknown and taints at a bounded rate; `tainting` turns conditions into taints that keep new
Pods away; `eviction` deletes Pods from Nodes whose taints they do not bear, or no longer. `health`, `taints` and `zones` decide.
"""

from __future__ import annotations

from bramley.apiserver.controllers.node_lifecycle import eviction, monitor, tainting
from bramley.apiserver.controllers.timings import Timings
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.manager import Manager


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the controllers of node lifecycle to a manager."""
    monitor.add(manager, client, clock=clock, timings=timings)
    tainting.add(manager, client, clock=clock, timings=timings)
    eviction.add(manager, client, clock=clock, timings=timings)
