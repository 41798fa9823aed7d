"""Stored objects that cannot be read: each is logged once, and none prevents others from being read.

There are two sorts. An object without a valid envelope, for example in a damaged file, is quarantined when the store is opened:
it is in no list and no watch, and can only be deleted or replaced. An object that is complete but does not have the form that
one reader needs, for example because an older release stored it, is served like any other; that reader skips it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TypeAlias

import msgspec

from bramley.apiserver.store.records import Key, Record, Records
from bramley.base import log

logger = log.get(__name__)

CheckRecord: TypeAlias = Callable[[Record], str]
"""Returns what is wrong with a stored object's envelope, or an empty text if it is valid."""

DECODE_ERRORS = (
    msgspec.MsgspecError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What decoding an object without the expected form can raise."""


class _Owner(msgspec.Struct, frozen=True, rename="camel", gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str
    resource_version: str
    namespace: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[_Owner] | None = None
    managed_fields: list[msgspec.Raw] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    metadata: _Metadata


_DECODER = msgspec.json.Decoder(_Envelope)


def check_envelope(record: Record) -> str:
    """Return what is wrong with a stored object's envelope, or an empty text if it is valid."""
    try:
        meta = _DECODER.decode(record.body).metadata
    except DECODE_ERRORS as error:
        return str(error)
    identity = meta.namespace, meta.name, meta.resource_version
    stored = record.key.namespace, record.key.name, str(record.rv)
    return "" if identity == stored else f"its metadata is {identity}, but its key {stored}"


def accept_any(_record: Record) -> str:
    """Accept every record."""
    return ""


class DamagedObjects:
    """The objects of one store that cannot be read."""

    __slots__ = ("_reported", "quarantined")

    def __init__(self) -> None:
        self.quarantined: dict[Key, Record] = {}
        self._reported: dict[Key, int] = {}

    def without_damaged(self, records: Iterable[Record], check_record: CheckRecord) -> Records:
        """Return the records without the damaged ones, which are quarantined."""
        readable: Records = []
        for record in records:
            if wrong := check_record(record):
                self.quarantined[record.key] = record
                self._log_once(record, "Quarantined damaged object", wrong)
            else:
                readable.append(record)
        return readable

    def unreadable(self, get: Callable[[Key], Record | None]) -> Iterator[Key]:
        """Yield the objects that a reader could not decode and that have not changed since."""
        for key, rv in self._reported.items():
            current = get(key)
            if current is not None and current.rv == rv:
                yield key

    def skip_unreadable(self, record: Record) -> _SkipUnreadable:
        """Return a context that ends, without an error, where this object does not have the form that its reader needs."""
        return _SkipUnreadable(self, record)

    def report(self, record: Record, error: BaseException) -> None:
        """Log that an object cannot be read, unless this state of it was logged before."""
        self._log_once(record, "Reading stored object failed", f"{type(error).__name__}: {error}")

    def _log_once(self, record: Record, message: str, reason: str) -> None:
        if self._reported.get(record.key) == record.rv:
            return
        self._reported[record.key] = record.rv
        kind, namespace, name = record.key
        logger.error(message, resource=kind, namespace=namespace, name=name, reason=reason)


class _SkipUnreadable:
    """Suppresses and logs the errors of decoding one object."""

    __slots__ = ("_damage", "_record")

    def __init__(self, damage: DamagedObjects, record: Record) -> None:
        self._damage = damage
        self._record = record

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if not isinstance(error, DECODE_ERRORS):
            return False
        self._damage.report(self._record, error)
        return True
