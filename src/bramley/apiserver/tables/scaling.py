"""What an autoscaler aims at, each metric in a few characters."""

from __future__ import annotations

from bramley.apiserver.tables.durations import UNKNOWN
from bramley.apiserver.tables.fields import NONE, Json, find

_SHOWN = 2
_FIELDS = {
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def reference(scaler: Json) -> str:
    """Return what is scaled."""
    target = find(scaler, "spec.scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def targets(scaler: Json) -> str:
    """Return the first metrics, each as what is over what shall be."""
    specs = find(scaler, "spec.metrics") or []
    states = find(scaler, "status.currentMetrics") or []
    if not specs:
        return NONE
    told = [
        _target(spec, states[index] if index < len(states) else {})
        for index, spec in enumerate(specs)
    ]
    text = ", ".join(told[:_SHOWN])
    return f"{text} + {len(told) - _SHOWN} more..." if len(told) > _SHOWN else text


def _target(spec: Json, state: Json) -> str:
    field = _FIELDS.get(spec.get("type", ""))
    if field is None:
        return "<unknown type>"
    wanted, current = spec.get(field) or {}, (state.get(field) or {}).get("current")
    goal = wanted.get("target") or {}
    if field in {"resource", "containerResource"}:
        return f"{wanted.get('name', '')}: {_of_resource(goal, current)}"
    if field == "pods":
        return f"{_amount(current, 'averageValue', '0')}/{goal.get('averageValue', '0')}"
    if "averageValue" in goal:
        return f"{_amount(current, 'averageValue', UNKNOWN)}/{goal['averageValue']} (avg)"
    return f"{_amount(current, 'value', '0')}/{goal.get('value', '0')}"


def _of_resource(goal: Json, current: Json | None) -> str:
    if "averageValue" in goal:
        return f"{_amount(current, 'averageValue', '0')}/{goal['averageValue']}"
    wanted = goal.get("averageUtilization")
    used = (current or {}).get("averageUtilization")
    return f"{_percent(used, UNKNOWN)}/{_percent(wanted, '<auto>')}"


def _amount(current: Json | None, field: str, absent: str) -> str:
    return UNKNOWN if current is None else str(current.get(field, absent))


def _percent(value: int | None, absent: str) -> str:
    return absent if value is None else f"{value}%"
