"""The roles and bindings that every cluster has, made at the first start and mended at each later one.

Mending only adds, like a real server's: rights and subjects that somebody took away come back, what was added stays, and
an object whose annotation `rbac.authorization.kubernetes.io/autoupdate` is "false" is left alone. The data is cut from a
real server by `tools/policy.py`; objects are put together from bytes and written as one group, so that a start stays quick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import resources
from typing import Any
from uuid import UUID

import msgspec

from bramley.apiserver.apimachinery.metadata import timestamp
from bramley.apiserver.auth import rules
from bramley.apiserver.auth.rbac import GROUP
from bramley.apiserver.auth.rules import Rule
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.store.records import Draft, Key, Record
from bramley.apiserver.store.store import Store
from bramley.base.clock import Clock

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
# Who the API is to the agents on nodes; the policy gives it the rights to speak to them, and no others.
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
_FILE = "policy.json"


class _Named(msgspec.Struct):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Entry(msgspec.Struct):
    """One object of the data file; what is written as it stands is left undecoded."""

    kind: str
    resource: str
    namespace: str
    name: str
    metadata: _Named
    rest: msgspec.Raw

    @property
    def key(self) -> Key:
        return Key(self.resource, self.namespace, self.name)

    @property
    def tail(self) -> bytes:
        """Return the end of the object's JSON: all that is not its name, and the last brace."""
        return bytes(self.rest)[1:]


async def ensure(store: Store, clock: Clock, make_uid: Callable[[], UUID]) -> None:
    """Create what is missing and mend what lacks something."""
    now = timestamp(clock.now())
    due = [entry for entry in _entries() if not _is_whole(entry, store.get(entry.key))]

    def build(entry: _Entry, uid: UUID) -> Callable[[Record | None, int], Draft | None]:
        def decide(current: Record | None, rv: int) -> Draft | None:
            if current is None:
                return _new(entry, str(uid), rv=rv, now=now)
            return _mended(entry, current, rv)

        return decide

    writes = (store.write(entry.key, build(entry, make_uid())) for entry in due)
    await asyncio.gather(*writes)


def _entries() -> list[_Entry]:
    data = resources.files(__package__).joinpath(_FILE).read_bytes()
    return msgspec.json.decode(data, type=list[_Entry])


def _is_whole(entry: _Entry, current: Record | None) -> bool:
    """Tell at a glance that nothing changed; else a closer look decides."""
    return current is not None and current.body.endswith(entry.tail)


def _new(entry: _Entry, uid: str, *, rv: int, now: str) -> Draft:
    metadata = {
        "name": entry.name,
        **({"namespace": entry.namespace} if entry.namespace else {}),
        **msgspec.to_builtins(entry.metadata),
        "uid": uid,
        "creationTimestamp": now,
        "resourceVersion": str(rv),
    }
    head = f'{{"kind":"{entry.kind}","apiVersion":"{GROUP}/v1","metadata":'
    body = b"".join((head.encode(), msgspec.json.encode(metadata), b",", entry.tail))
    return Draft(body, entry.metadata.labels)


def _mended(entry: _Entry, current: Record, rv: int) -> Draft | None:
    whole: Json = msgspec.json.decode(current.body)
    meta = whole["metadata"]
    if (meta.get("annotations") or {}).get(AUTOUPDATE) == "false":
        return None
    wanted: Json = msgspec.json.decode(entry.rest)
    mended = {**whole, **_with_rights(whole, wanted)}
    if mended == whole:
        return None
    named = msgspec.to_builtins(entry.metadata)
    for field, values in named.items():
        meta[field] = {**(meta.get(field) or {}), **values}
    meta["resourceVersion"] = str(rv)
    return Draft(msgspec.json.encode(mended), meta.get("labels") or {})


def _with_rights(whole: Json, wanted: Json) -> Json:
    """Return the fields of an object that lack something, completed."""
    if "roleRef" in wanted:
        subjects = _listed(whole.get("subjects"))
        missing = [each for each in wanted.get("subjects", []) if each not in subjects]
        found = {"roleRef": wanted["roleRef"]}
        return {**found, "subjects": [*subjects, *missing]} if missing else found
    if "aggregationRule" in wanted:
        # Its rules are the aggregation's business.
        return {"aggregationRule": whole.get("aggregationRule") or wanted["aggregationRule"]}
    owned = whole.get("rules") or []
    try:
        held = msgspec.convert(owned, list[Rule])
    except msgspec.ValidationError:
        # It gives nobody anything as it stands.
        return {"rules": wanted.get("rules") or []}
    lacking = rules.uncovered(held, msgspec.convert(wanted.get("rules") or [], list[Rule]))
    if not lacking:
        return {}
    return {"rules": [*owned, *(msgspec.to_builtins(each) for each in rules.compacted(lacking))]}


def _listed(subjects: Any) -> list[Json]:
    try:
        return msgspec.convert(subjects or [], list[Json])
    except msgspec.ValidationError:
        return []
