"""Short timings for the clusters of this suite: the same values as settings of ours and as flags of the real servers.

Pod garbage collection of the real one has no flags: it runs every 20 s and waits 40 s before it treats a Node as gone.
"""

from __future__ import annotations

from datetime import timedelta

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.controllers.timings import Timings
from tools.kube.flags import Options

TOLERATION = timedelta(seconds=2)
EVENT_TTL = timedelta(seconds=15)
GRACE = timedelta(seconds=6)
_PERIOD, _GRACE, _STARTUP = 1, GRACE.seconds, 3
_ENDED_PODS = 3

OURS = Timings(
    node_monitor_period=timedelta(seconds=_PERIOD),
    node_monitor_grace=timedelta(seconds=_GRACE),
    node_startup_grace=timedelta(seconds=_STARTUP),
    pod_gc_period=timedelta(seconds=1),
    quarantine=timedelta(seconds=3),
    terminated_pod_threshold=_ENDED_PODS,
    event_ttl=EVENT_TTL,
    event_ttl_period=timedelta(seconds=1),
)
API = Settings(cluster_admission=True, outage_toleration=TOLERATION)
REAL = Options(
    durable=False,
    extra={
        "kube-apiserver": (
            f"--default-not-ready-toleration-seconds={TOLERATION.seconds}",
            f"--default-unreachable-toleration-seconds={TOLERATION.seconds}",
            f"--event-ttl={EVENT_TTL.seconds}s",
        ),
        "kube-controller-manager": (
            f"--node-monitor-period={_PERIOD}s",
            f"--node-monitor-grace-period={_GRACE}s",
            f"--node-startup-grace-period={_STARTUP}s",
            f"--terminated-pod-gc-threshold={_ENDED_PODS}",
        ),
    },
)
