"""All names of the external contract, by topic; no other module may contain one as a literal, which a test checks.

Existing fleets depend on these names, so they do not change. Used as `names.labels.FLEET` or `names.events.CREATING_VM`.
"""

from bramley.api.names import (
    access,
    agent,
    annotations,
    cluster_api,
    conditions,
    dispatch,
    events,
    finalizers,
    flags,
    groups,
    guest,
    host,
    labels,
    launchd,
    machines,
    metrics,
    runners,
    secrets,
)

__all__ = [
    "access",
    "agent",
    "annotations",
    "cluster_api",
    "conditions",
    "dispatch",
    "events",
    "finalizers",
    "flags",
    "groups",
    "guest",
    "host",
    "labels",
    "launchd",
    "machines",
    "metrics",
    "runners",
    "secrets",
]
