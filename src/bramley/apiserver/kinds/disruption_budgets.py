"""PodDisruptionBudgets: how many Pods of an application may be missing on purpose."""

from __future__ import annotations

from collections.abc import Iterator

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.kinds import label_selectors, numbers
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def complete(new: Json) -> None:
    """Give a new budget its first status."""
    new["status"] = dict.fromkeys(_COUNTS, 0)


def default(new: Json) -> None:
    """Show what a real server always shows of a budget."""
    new.setdefault("spec", {})
    new["status"] = {**dict.fromkeys(_COUNTS, 0), **new.get("status", {})}


def check(new: Json) -> list[Cause]:
    """Return what is wrong with a budget."""
    spec = new["spec"]
    found = [*_wrong_amounts(spec)]
    found += label_selectors.check(spec.get("selector") or {}, "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy", _POLICIES[0])
    if policy not in _POLICIES:
        found.append(causes.unsupported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return found


def check_status(new: Json, _old: Json) -> list[Cause]:
    """Return what is wrong with a budget's status."""
    return [*numbers.not_negative(new["status"], _COUNTS, "status")]


def _wrong_amounts(spec: Json) -> Iterator[Cause]:
    if "minAvailable" in spec and "maxUnavailable" in spec:
        # A real server shows its own names of the fields here.
        own = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        shown = ",".join(f'"{key}":{causes.shown(value)}' for key, value in own.items())
        detail = "minAvailable and maxUnavailable cannot be both set"
        yield Cause("spec", "FieldValueInvalid", f"Invalid value: {{{shown}}}: {detail}")
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            yield from numbers.amount(spec[name], f"spec.{name}")
            yield from numbers.at_most_all(spec[name], f"spec.{name}")
