"""The rows of the core group's kinds except Pods, and of API groups with one or two small kinds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from bramley.apiserver.tables.cells import (
    NONE,
    UNKNOWN,
    Json,
    Row,
    age,
    at,
    computed,
    condition,
    count,
    find,
    is_condition_true,
    is_terminating,
    name,
    number,
    row,
    time_since,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"


def _status(node: Json) -> str:
    ready = "Ready" if is_condition_true(node, "Ready") else "NotReady"
    status = ready if condition(node, "Ready") else "Unknown"
    return f"{status},SchedulingDisabled" if find(node, "spec.unschedulable") else status


def _roles(node: Json) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE, ""))
    return ",".join(sorted(roles - {""})) or NONE


def _address(node: Json, type: str) -> str:
    found = find(node, "status.addresses") or ()
    return next((each["address"] for each in found if each.get("type") == type), NONE)


_NODE = row(
    name,
    computed(_status),
    computed(_roles),
    age,
    at("status.nodeInfo.kubeletVersion"),
    computed(lambda node: _address(node, "InternalIP")),
    computed(lambda node: _address(node, "ExternalIP")),
    at("status.nodeInfo.osImage", UNKNOWN),
    at("status.nodeInfo.kernelVersion", UNKNOWN),
    at("status.nodeInfo.containerRuntimeVersion", UNKNOWN),
)


def _event(event: Json, now: datetime) -> list[Any]:
    """Return the cells of an event in the form of the core group, in which both groups are stored."""
    first = time_since(event.get("firstTimestamp") or event.get("eventTime"), now)
    series = event.get("series")
    last = time_since(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    return [
        time_since(series.get("lastObservedTime"), now) if series else last,
        event.get("type", ""),
        event.get("reason", ""),
        _target(event.get("involvedObject") or {}),
        find(event, "involvedObject.fieldPath") or "",
        _source(event),
        (event.get("message") or "").strip(),
        first,
        series.get("count", 0) if series else event.get("count") or 1,
        event["metadata"].get("name", ""),
    ]


def _target(involved: Json) -> str:
    kind = str(involved.get("kind", "")).lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def _source(event: Json) -> str:
    component = find(event, "source.component") or event.get("reportingComponent") or ""
    instance = find(event, "source.host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


_FLOWS = "flowcontrol.apiserver.k8s.io"
_QUEUES = "spec.limited.limitResponse.queuing"


def _quota(quota: Json, *, of_limits: bool) -> str:
    hard, used = (find(quota, f"status.{each}") or {} for each in ("hard", "used"))
    return ", ".join(
        f"{resource}: {used.get(resource, '0')}/{amount}"
        for resource, amount in sorted(hard.items())
        if resource.startswith("limits.") == of_limits
    )


def _service(registered: Json) -> str:
    service = find(registered, "spec.service")
    return f"{service['namespace']}/{service['name']}" if service else "Local"


def _availability(registered: Json) -> str:
    available = condition(registered, "Available") or {"status": "Unknown"}
    reason = f" ({available['reason']})" if available.get("reason") else ""
    return str(available["status"]) + ("" if available["status"] == "True" else reason)


def _dangling(schema: Json) -> str:
    return str((condition(schema, "Dangling") or {"status": "?"})["status"])


def _claim_state(claim: Json) -> str:
    is_allocated = find(claim, "status.allocation") is not None
    states = {
        "deleted": is_terminating(claim),
        "pending": not is_allocated and not is_terminating(claim),
        "allocated": is_allocated,
        "reserved": is_allocated and bool(find(claim, "status.reservedFor")),
    }
    return ",".join(state for state, is_condition_true in states.items() if is_condition_true)


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "nodes": _NODE,
        "events": _event,
        "events.events.k8s.io": _event,
        "configmaps": row(name, count("data", "binaryData"), age),
        "secrets": row(name, at("type"), count("data"), age),
        "serviceaccounts": row(name, count("secrets"), age),
        "namespaces": row(name, at("status.phase"), age),
        "leases.coordination.k8s.io": row(name, at("spec.holderIdentity"), age),
        "priorityclasses.scheduling.k8s.io": row(
            name, number("value"), at("globalDefault", absent=False), age, at("preemptionPolicy")
        ),
        "runtimeclasses.node.k8s.io": row(name, at("handler"), age),
        "resourcequotas": row(
            name,
            computed(lambda quota: _quota(quota, of_limits=False)),
            computed(lambda quota: _quota(quota, of_limits=True)),
            age,
        ),
        "apiservices.apiregistration.k8s.io": row(
            name, computed(_service), computed(_availability), age
        ),
        f"flowschemas.{_FLOWS}": row(
            name,
            at("spec.priorityLevelConfiguration.name"),
            number("spec.matchingPrecedence"),
            at("spec.distinguisherMethod.type", NONE),
            age,
            computed(_dangling),
        ),
        f"prioritylevelconfigurations.{_FLOWS}": row(
            name,
            at("spec.type"),
            at("spec.limited.nominalConcurrencyShares", NONE),
            at(f"{_QUEUES}.queues", NONE),
            at(f"{_QUEUES}.handSize", NONE),
            at(f"{_QUEUES}.queueLengthLimit", NONE),
            age,
        ),
        "deviceclasses.resource.k8s.io": row(name, age),
        "resourceclaims.resource.k8s.io": row(name, computed(_claim_state), age),
        "resourceclaimtemplates.resource.k8s.io": row(name, age),
        "resourceslices.resource.k8s.io": row(
            name, at("spec.nodeName"), at("spec.driver"), at("spec.pool.name"), age
        ),
    }
)
