"""Which taints a Node has of our making, and how a Node's list of taints changes. Pure.

NoSchedule taints follow from conditions at once; the NoExecute ones, which evict, are put on by `monitor` at its own pace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from bramley.api import conditions
from bramley.api.core import Node, Pod, Taint
from bramley.apiserver.controllers.scheduling.affinity import tolerated

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# By condition and status.
_OF_CONDITIONS = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_OURS = frozenset((*_OF_CONDITIONS.values(), UNSCHEDULABLE))
FOREVER = None


def wanted(node: Node) -> list[str]:
    """Return the keys of the NoSchedule taints that the Node's conditions ask for."""
    keys = [_OF_CONDITIONS.get((each.type, each.status)) for each in node.status.conditions]
    found = [key for key in keys if key is not None]
    return [*found, UNSCHEDULABLE] if node.spec.unschedulable else found


def keeping_away(node: Node, *, today: datetime) -> list[Taint]:
    """Return the Node's taints with exactly the NoSchedule ones that its conditions ask for."""
    keys = wanted(node)
    kept = [
        each
        for each in node.spec.taints
        if each.effect != "NoSchedule" or each.key not in _OURS or each.key in keys
    ]
    have = {each.key for each in kept if each.effect == "NoSchedule"}
    missing = [key for key in dict.fromkeys(keys) if key not in have]
    return [*kept, *(_made(key, "NoSchedule", today) for key in missing)]


def evicting(before: Sequence[Taint], key: str | None, *, today: datetime) -> list[Taint]:
    """Return the taints with this one of the two that evict, and without the other; with None, without both."""
    others = {NOT_READY, UNREACHABLE} - {key}
    kept = [each for each in before if each.effect != "NoExecute" or each.key not in others]
    if key is None or any(each.key == key and each.effect == "NoExecute" for each in kept):
        return kept
    return [*kept, _made(key, "NoExecute", today)]


def evicts(taints: Iterable[Taint], key: str) -> bool:
    """Tell whether the taint that evicts is there."""
    return any(each.key == key and each.effect == "NoExecute" for each in taints)


def key_for(node: Node) -> str | None:
    """Return the key of the taint that should evict from a Node in this state, or None."""
    ready = conditions.find(node.status.conditions, "Ready")
    return None if ready is None else _OF_CONDITIONS.get(("Ready", ready.status))


def no_execute(node: Node | None) -> list[Taint]:
    """Return the taints that evict, whoever put them on."""
    return [] if node is None else [each for each in node.spec.taints if each.effect == "NoExecute"]


def bears(pod: Pod, taints: Iterable[Taint]) -> int | None:
    """Return for how many seconds the Pod bears these taints; None stands for ever."""
    found = [tolerated(taint, pod.spec.tolerations) for taint in taints]
    if any(each is None for each in found):
        return 0
    limits = [each.toleration_seconds for each in found if each is not None]
    bounded = [max(limit, 0) for limit in limits if limit is not None]
    return min(bounded) if bounded else FOREVER


def patch(taints: Sequence[Taint]) -> dict[str, object]:
    """Return the merge patch that gives a Node these taints."""
    return {"spec": {"taints": msgspec.to_builtins(list(taints)) or None}}


def _made(key: str, effect: str, today: datetime) -> Taint:
    return Taint(key=key, effect=effect, time_added=today.replace(microsecond=0))
