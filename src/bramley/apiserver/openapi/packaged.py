"""The schemas of the built-in kinds, cut from a real server by `tools/openapi.py`; their texts are carried along unread."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from functools import cache
from importlib import resources

import msgspec

_FILE = "schemas.json.gz"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."

OBJECT_META = f"{_META}ObjectMeta"
LIST_META = f"{_META}ListMeta"
STATUS = f"{_META}Status"
PATCH = f"{_META}Patch"
DELETE_OPTIONS = f"{_META}DeleteOptions"
SCALE = "io.k8s.api.autoscaling.v1.Scale"

Kind = tuple[str, str, str]


class Schema(msgspec.Struct, frozen=True):
    """One schema: the kinds that it is for, the schemas that it refers to, and its text."""

    kinds: list[Kind]
    needs: list[str]
    schema: msgspec.Raw


@cache
def schemas() -> dict[str, Schema]:
    """Return all schemas by name."""
    data = resources.files(__package__).joinpath(_FILE).read_bytes()
    return msgspec.json.decode(gzip.decompress(data), type=dict[str, Schema])


@cache
def _by_kind() -> dict[Kind, str]:
    # Options and statuses say that they are for every group there is; a kind of its own is for one or two.
    found = ((name, each) for name, each in schemas().items() if not name.startswith(_META))
    return {kind: name for name, each in found for kind in each.kinds}


def name_of(group: str, version: str, kind: str) -> str | None:
    """Return the name of a built-in kind's schema, if it has one."""
    return _by_kind().get((group, version, kind))


def closure(roots: Iterable[str]) -> dict[str, msgspec.Raw]:
    """Return these schemas and all that they refer to, by name."""
    found: dict[str, msgspec.Raw] = {}
    known, waiting = schemas(), list(roots)
    while waiting:
        name = waiting.pop()
        if name in found or name not in known:
            continue
        found[name] = known[name].schema
        waiting += known[name].needs
    return dict(sorted(found.items()))
