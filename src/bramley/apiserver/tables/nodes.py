"""The row of a Node: whether it is ready and takes Pods, what it is for, and what runs it."""

from __future__ import annotations

from bramley.apiserver.tables.durations import UNKNOWN
from bramley.apiserver.tables.fields import (
    NONE,
    Json,
    age,
    at,
    condition,
    find,
    holds,
    made,
    name,
    row,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"


def _status(node: Json) -> str:
    ready = "Ready" if holds(node, "Ready") else "NotReady"
    said = ready if condition(node, "Ready") else "Unknown"
    return f"{said},SchedulingDisabled" if find(node, "spec.unschedulable") else said


def _roles(node: Json) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE, ""))
    return ",".join(sorted(roles - {""})) or NONE


def _address(node: Json, type: str) -> str:
    found = find(node, "status.addresses") or ()
    return next((each["address"] for each in found if each.get("type") == type), NONE)


ROW = row(
    name,
    made(_status),
    made(_roles),
    age,
    at("status.nodeInfo.kubeletVersion"),
    made(lambda node: _address(node, "InternalIP")),
    made(lambda node: _address(node, "ExternalIP")),
    at("status.nodeInfo.osImage", UNKNOWN),
    at("status.nodeInfo.kernelVersion", UNKNOWN),
    at("status.nodeInfo.containerRuntimeVersion", UNKNOWN),
)
