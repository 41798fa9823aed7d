"""The roles and bindings that every cluster has, created at the first start and reconciled at each later one.

As in kube-apiserver, reconciliation only adds: permissions and subjects that were removed come back, additions stay, and an
object whose annotation `rbac.authorization.kubernetes.io/autoupdate` is "false" is left alone. The data is extracted from a
kube-apiserver by `tools/policy.py`; objects are assembled from bytes and written as one group, so that a start stays fast.
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
# The user name of the API server to agents; the policy allows it to call them, and nothing else.
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
_FILE = "policy.json"


class _Named(msgspec.Struct):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Entry(msgspec.Struct):
    """One object of the data file; the part that is written unchanged stays undecoded."""

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
        """Return the end of the object's JSON: everything behind its metadata."""
        return bytes(self.rest)[1:]


async def ensure(store: Store, clock: Clock, make_uid: Callable[[], UUID]) -> None:
    """Create missing objects and complete those that lack something."""
    now = timestamp(clock.now())
    stale = [entry for entry in _entries() if not _is_unchanged(entry, store.get(entry.key))]

    def build(entry: _Entry, uid: UUID) -> Callable[[Record | None, int], Draft | None]:
        def decide(current: Record | None, rv: int) -> Draft | None:
            if current is None:
                return _new_draft(entry, str(uid), rv=rv, now=now)
            return _reconcile(entry, current, rv)

        return decide

    writes = (store.write(entry.key, build(entry, make_uid())) for entry in stale)
    await asyncio.gather(*writes)


def _entries() -> list[_Entry]:
    data = resources.files(__package__).joinpath(_FILE).read_bytes()
    return msgspec.json.decode(data, type=list[_Entry])


def _is_unchanged(entry: _Entry, current: Record | None) -> bool:
    """Return whether the object certainly lacks nothing; if not, its decoded form decides."""
    return current is not None and current.body.endswith(entry.tail)


def _new_draft(entry: _Entry, uid: str, *, rv: int, now: str) -> Draft:
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


def _reconcile(entry: _Entry, current: Record, rv: int) -> Draft | None:
    body: Json = msgspec.json.decode(current.body)
    meta = body["metadata"]
    if (meta.get("annotations") or {}).get(AUTOUPDATE) == "false":
        return None
    desired: Json = msgspec.json.decode(entry.rest)
    reconciled = {**body, **_completed_fields(body, desired)}
    if reconciled == body:
        return None
    named = msgspec.to_builtins(entry.metadata)
    for field, values in named.items():
        meta[field] = {**(meta.get(field) or {}), **values}
    meta["resourceVersion"] = str(rv)
    return Draft(msgspec.json.encode(reconciled), meta.get("labels") or {})


def _completed_fields(current: Json, desired: Json) -> Json:
    """Return the fields of an object that lack something, completed."""
    if "roleRef" in desired:
        subjects = _subjects_or_empty(current.get("subjects"))
        missing = [each for each in desired.get("subjects", []) if each not in subjects]
        fields = {"roleRef": desired["roleRef"]}
        return {**fields, "subjects": [*subjects, *missing]} if missing else fields
    if "aggregationRule" in desired:
        # The aggregation controller owns its rules.
        return {"aggregationRule": current.get("aggregationRule") or desired["aggregationRule"]}
    owned = current.get("rules") or []
    try:
        rules_now = msgspec.convert(owned, list[Rule])
    except msgspec.ValidationError:
        # Rules that cannot be read grant nothing, so nothing is lost by replacing them.
        return {"rules": desired.get("rules") or []}
    missing_rules = rules.uncovered(
        rules_now, msgspec.convert(desired.get("rules") or [], list[Rule])
    )
    if not missing_rules:
        return {}
    return {
        "rules": [*owned, *(msgspec.to_builtins(each) for each in rules.compacted(missing_rules))]
    }


def _subjects_or_empty(subjects: Any) -> list[Json]:
    try:
        return msgspec.convert(subjects or [], list[Json])
    except msgspec.ValidationError:
        return []
