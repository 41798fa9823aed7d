"""Settings of an embedded cluster for modelled hosts: Nodes need no heartbeat, and everything periodic is rare.

A cluster at rest then costs little, so that a day of a large fleet passes in seconds.
"""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.controllers.timings import Timings

_NEVER = timedelta(days=3650)


def timings() -> Timings:
    """Return the timings of the cluster's controllers."""
    return dataclasses.replace(
        Timings(),
        node_monitor_period=timedelta(minutes=1),
        node_monitor_grace=_NEVER,
        node_startup_grace=_NEVER,
        pod_gc_period=timedelta(minutes=10),
        event_ttl_period=timedelta(minutes=10),
        garbage_discovery_period=timedelta(hours=6),
    )


def api_settings() -> Settings:
    """Return the settings of the API, with the admission of a cluster."""
    return Settings(
        cluster_admission=True,
        # Below the silence after which an informer connects again.
        bookmark_every=timedelta(minutes=2),
        # Also the period in which the permission of an open watch is checked again.
        send_deadline=timedelta(hours=6),
    )
