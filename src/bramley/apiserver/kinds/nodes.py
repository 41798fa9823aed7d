"""Nodes: defaults, taints, quantities, and fields that may not change once they are set."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds import amounts
from bramley.apiserver.kinds.definitions import kind
from bramley.apiserver.registry.resources import Json, SelectableField, Strategy
from bramley.base.errors import Cause

_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_CONDITION = {"lastHeartbeatTime": None, "lastTransitionTime": None}
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def default(new: Json) -> None:
    """Set the fields that kube-apiserver always shows of a Node."""
    new["spec"] = _with_pod_cidrs(new.get("spec", {}))
    status = dict(new.get("status", {}))
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = {**dict.fromkeys(_INFO, ""), **status.get("nodeInfo", {})}
    if "conditions" in status:
        status["conditions"] = [{**_CONDITION, **each} for each in status["conditions"]]
    new["status"] = status


def check(new: Json) -> list[Cause]:
    """Return what is wrong with a Node."""
    field = "metadata.taints"
    errors: list[Cause] = []
    seen = set()
    for index, taint in enumerate(new["spec"].get("taints", [])):
        errors += _validate_taint(taint, f"{field}[{index}]")
        identity = (taint.get("key"), taint.get("effect"))
        if identity in seen:
            errors.append(causes.duplicate(f"{field}[{index}]", taint))
        seen.add(identity)
    return [*errors, *_validate_amounts(new)]


def check_status(new: Json, _old: Json) -> list[Cause]:
    """Return what is wrong with the status of a Node."""
    errors = [*_validate_amounts(new)]
    seen: list[Json] = []
    for index, each in enumerate(new["status"].get("addresses", [])):
        if each in seen:
            shown = {"Type": each.get("type", ""), "Address": each.get("address", "")}
            # kube-apiserver shows its Go struct, whose fields have an order.
            message = f"Duplicate value: {msgspec.json.encode(shown).decode()}"
            errors.append(Cause(f"status.addresses[{index}]", "FieldValueDuplicate", message))
        seen.append(each)
    return errors


def check_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a Node."""
    errors = []
    old_spec, new_spec = old.get("spec", {}), new["spec"]
    for field, shown in (("podCIDRs", "podCIDR"), ("providerID", "providerID")):
        if old_spec.get(field) and old_spec[field] != new_spec.get(field):
            detail = f'node updates may not change {shown} except from "" to valid'
            errors.append(causes.forbidden(f"spec.{field}", detail))
    return errors


def _with_pod_cidrs(spec: Json) -> Json:
    """Return a spec with consistent `podCIDR` and `podCIDRs`; the older field, `podCIDR`, wins."""
    first, ranges = spec.get("podCIDR"), spec.get("podCIDRs", [])
    if first and ranges[:1] != [first]:
        return {**spec, "podCIDRs": [first]}
    return {**spec, "podCIDR": ranges[0]} if ranges and not first else spec


def _validate_amounts(new: Json) -> Iterator[Cause]:
    for part in ("capacity", "allocatable"):
        for name, amount in new["status"].get(part, {}).items():
            yield from amounts.check_quantity(name, amount, f"status.{part}.{name}")


def _validate_taint(taint: Json, field: str) -> list[Cause]:
    key, value, effect = (taint.get(name, "") for name in ("key", "value", "effect"))
    errors = causes.invalid_each(f"{field}.key", key, names.qualified_name(key))
    errors += causes.invalid_each(f"{field}.value", value, names.label_value(value))
    if not effect:
        errors.append(causes.required(f"{field}.effect"))
    elif effect not in EFFECTS:
        errors.append(causes.unsupported(f"{field}.effect", effect, EFFECTS))
    return errors


KINDS = (
    kind(
        "Node",
        namespaced=False,
        short_names=("no",),
        has_status=True,
        selectable=(SelectableField("spec.unschedulable", ("spec", "unschedulable"), "false"),),
        strategy=Strategy(
            default=default,
            validate=check,
            validate_update=check_change,
            validate_status=check_status,
            status_on_create=True,
        ),
    ),
)
