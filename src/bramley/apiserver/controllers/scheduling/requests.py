"""How much a Pod asks for, in whole numbers: thousandths of a CPU, bytes, pieces.

The rules are those of every Kubernetes scheduler: containers add up, init containers run one after the other beside the
sidecars that started before them, a Pod's own requests go before those of its containers, overhead comes on top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import ceil

from bramley.api import quantities
from bramley.api.pod import Container, PodSpec, Quantity

Amounts = dict[str, int]

# What scoring takes a container for that says nothing, so that many of those do not all end on one Node.
_FLOOR: Mapping[str, int] = {"cpu": 100, "memory": 200 * 1024 * 1024}
_OF_PODS = ("cpu", "memory")


def amounts(given: Mapping[str, Quantity]) -> Amounts:
    """Return the amounts as whole numbers, rounded up; what is no quantity counts as nothing."""
    return {name: _amount(name == "cpu", str(value)) for name, value in given.items()}


@lru_cache(maxsize=1024)
def _amount(is_cpu: bool, text: str) -> int:  # noqa: FBT001 - a cache key
    try:
        value = quantities.parse(text).value
    except quantities.NoQuantity:
        return 0
    return ceil(value * 1000) if is_cpu else ceil(value)


def of_pod(spec: PodSpec) -> Amounts:
    """Return what must be free on a Node for the Pod."""
    return _total(spec, lambda container: amounts(container.resources.requests))


def floor_of_pod(spec: PodSpec) -> tuple[int, int]:
    """Return the CPU and memory that scoring takes the Pod for."""
    total = _total(spec, lambda container: {**_FLOOR, **amounts(container.resources.requests)})
    return total.get("cpu", 0), total.get("memory", 0)


def _total(spec: PodSpec, of: Callable[[Container], Amounts]) -> Amounts:
    total: Amounts = {}
    for container in spec.containers:
        _add(total, of(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(total, of(container))
            _add(sidecars, of(container))
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, _sum(sidecars, of(container)))
    _raise_to(total, peak)
    if spec.resources is not None:
        own = amounts(spec.resources.requests)
        total |= {name: own[name] for name in _OF_PODS if name in own}
    _add(total, amounts(spec.overhead))
    return total


def _sum(one: Amounts, other: Amounts) -> Amounts:
    total = dict(one)
    _add(total, other)
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)
