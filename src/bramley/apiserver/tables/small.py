"""The rows of kinds with little to say."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bramley.apiserver.tables.fields import (
    NONE,
    Json,
    Row,
    age,
    at,
    condition,
    count,
    find,
    is_going,
    made,
    name,
    number,
    row,
)

_FLOWS = "flowcontrol.apiserver.k8s.io"
_QUEUES = "spec.limited.limitResponse.queuing"


def _quota(quota: Json, *, of_limits: bool) -> str:
    hard, used = (find(quota, f"status.{each}") or {} for each in ("hard", "used"))
    told = [
        f"{resource}: {used.get(resource, '0')}/{amount}"
        for resource, amount in sorted(hard.items())
        if resource.startswith("limits.") == of_limits
    ]
    return ", ".join(told)


def _service(registered: Json) -> str:
    service = find(registered, "spec.service")
    return f"{service['namespace']}/{service['name']}" if service else "Local"


def _availability(registered: Json) -> str:
    told = condition(registered, "Available") or {"status": "Unknown"}
    reason = f" ({told['reason']})" if told.get("reason") else ""
    return str(told["status"]) + ("" if told["status"] == "True" else reason)


def _dangling(schema: Json) -> str:
    return str((condition(schema, "Dangling") or {"status": "?"})["status"])


def _claim_state(claim: Json) -> str:
    is_allocated = find(claim, "status.allocation") is not None
    states = {
        "deleted": is_going(claim),
        "pending": not is_allocated and not is_going(claim),
        "allocated": is_allocated,
        "reserved": is_allocated and bool(find(claim, "status.reservedFor")),
    }
    return ",".join(state for state, holds in states.items() if holds)


ROWS: Mapping[str, Row] = MappingProxyType(
    {
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
            made(lambda quota: _quota(quota, of_limits=False)),
            made(lambda quota: _quota(quota, of_limits=True)),
            age,
        ),
        "apiservices.apiregistration.k8s.io": row(name, made(_service), made(_availability), age),
        f"flowschemas.{_FLOWS}": row(
            name,
            at("spec.priorityLevelConfiguration.name"),
            number("spec.matchingPrecedence"),
            at("spec.distinguisherMethod.type", NONE),
            age,
            made(_dangling),
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
        "resourceclaims.resource.k8s.io": row(name, made(_claim_state), age),
        "resourceclaimtemplates.resource.k8s.io": row(name, age),
        "resourceslices.resource.k8s.io": row(
            name, at("spec.nodeName"), at("spec.driver"), at("spec.pool.name"), age
        ),
    }
)
