"""Node lifecycle: Nodes whose heartbeat stopped, and the Pods on them.

`monitor` marks such Nodes as Unknown and taints them for eviction at the rate that `zones` allows; `taints` turns conditions
into NoSchedule taints; `eviction` deletes Pods that do not, or no longer, tolerate a NoExecute taint of their Node.
"""

from __future__ import annotations

from bramley.apiserver.controllers.node_lifecycle import eviction, monitor, taints
from bramley.apiserver.controllers.timings import Timings
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.manager import Manager


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the controllers of node lifecycle to a manager."""
    monitor.add(manager, client, clock=clock, timings=timings)
    taints.add(manager, client, clock=clock, timings=timings)
    eviction.add(manager, client, clock=clock, timings=timings)
