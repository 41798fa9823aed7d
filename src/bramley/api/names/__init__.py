"""Every name of the outside contract, by theme; no other module may spell one out.

An existing fleet switches to Bramley because these stay as they are. Read as `names.labels.FLEET`, `names.events.CREATING_VM`.
A test looks for literals elsewhere in the package.
"""

from bramley.api.names import (
    access,
    agent,
    annotations,
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
