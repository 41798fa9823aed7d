"""Checks of amounts that many kinds share: counts, percentages, and quantities of resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bramley.api import quantities
from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_PERCENT = re.compile(r"[0-9]+%")
NOT_NEGATIVE = "must be greater than or equal to 0"
_NOT_A_PERCENTAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_KNOWN = _OF_CONTAINERS | frozenset(
    {f"{side}.{name}" for side in ("requests", "limits") for name in _OF_CONTAINERS}
    | {"pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"}
    | {"persistentvolumeclaims", "storage", "requests.storage"}
    | {"services.nodeports", "services.loadbalancers"}
)
_WHOLE = (
    _KNOWN
    - {"storage", "requests.storage"}
    - {each for each in _KNOWN if each.rpartition(".")[2] in _OF_CONTAINERS}
)
_PAGES = "hugepages-"


def not_negative(holder: Json, names: Iterable[str], field: str) -> Iterator[Cause]:
    """Yield a cause for each of the named numbers that is negative."""
    for name in names:
        if holder.get(name, 0) < 0:
            yield causes.invalid(f"{field}.{name}", holder[name], NOT_NEGATIVE)


def check_count_or_percent(value: int | str, field: str) -> Iterator[Cause]:
    """Yield what is wrong with a count that may also be a percentage."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield causes.invalid(field, value, _NOT_A_PERCENTAGE)
    elif value < 0:
        yield causes.invalid(field, value, NOT_NEGATIVE)


def check_percent_limit(value: int | str, field: str) -> Iterator[Cause]:
    """Yield a cause when a percentage is above 100."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        yield causes.invalid(field, value, "must not be greater than 100%")


def check_resource(name: str, amount: str, field: str) -> Iterator[Cause]:
    """Yield what is wrong with the name or the quantity of a container's resource."""
    wrong = names.qualified_name(name)
    yield from causes.invalid_each(field, name, wrong)
    if not wrong and not _is_known(name):
        detail = "must be a standard resource type or fully qualified"
        yield causes.invalid(field, name, detail)
    yield from _validate_container_resource(name, field)
    yield from check_quantity(name, amount, field)


def check_quantity(name: str, amount: str, field: str) -> Iterator[Cause]:
    """Yield what is wrong with a quantity of a resource of any name."""
    value = quantities.parse(amount).value
    if value < 0:
        yield causes.invalid(field, amount, NOT_NEGATIVE)
    if (name in _WHOLE or _is_extended(name)) and value % 1:
        yield causes.invalid(field, amount, "must be an integer")


def may_be_overcommitted(name: str) -> bool:
    """Return whether the requests of a resource may exceed what a node has."""
    return _is_native(name) and not name.startswith(_PAGES)


def _validate_container_resource(name: str, field: str) -> Iterator[Cause]:
    if "/" not in name:
        if name not in _OF_CONTAINERS and not name.startswith(_PAGES):
            yield causes.invalid(field, name, "must be a standard resource for containers")
    elif not _is_native(name) and not _is_extended(name):
        yield causes.invalid(field, name, "doesn't follow extended resource name standard")


def _is_known(name: str) -> bool:
    return "/" in name or name in _KNOWN or name.startswith(_PAGES)


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_extended(name: str) -> bool:
    if _is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{name}")
