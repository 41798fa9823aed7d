"""Names of what a container may ask for, and the amounts that make sense for each."""

from __future__ import annotations

from collections.abc import Iterator

from bramley.api import quantities
from bramley.apiserver.apimachinery import causes, names
from bramley.base.errors import Cause

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


def check(name: str, amount: str, field: str) -> Iterator[Cause]:
    """Yield what is wrong with asking for so much of something."""
    wrong = names.qualified_name(name)
    yield from (causes.invalid(field, name, each) for each in wrong)
    if not wrong and not _is_known(name):
        detail = "must be a standard resource type or fully qualified"
        yield causes.invalid(field, name, detail)
    yield from _foreign(name, field)
    yield from check_amount(name, amount, field)


def check_amount(name: str, amount: str, field: str) -> Iterator[Cause]:
    """Yield what is wrong with so much of something, whatever it is."""
    value = quantities.parse(amount).value
    if value < 0:
        yield causes.invalid(field, amount, "must be greater than or equal to 0")
    if (name in _WHOLE or _is_extended(name)) and value % 1:
        yield causes.invalid(field, amount, "must be an integer")


def may_be_overcommitted(name: str) -> bool:
    """Tell whether a node may promise more of something than it has."""
    return _is_native(name) and not name.startswith(_PAGES)


def _foreign(name: str, field: str) -> Iterator[Cause]:
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
