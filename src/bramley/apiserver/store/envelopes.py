"""What every stored object must have for the server to work with it: a kind, and metadata that name it and are well formed.

The rest of an object is looked at by those who need it. See `store/damage.py` for what becomes of one that fails here.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from bramley.apiserver.store.damage import DECODE_ERRORS
from bramley.apiserver.store.records import Record


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
    """Say what is wrong with a stored object's envelope; nothing when it is sound."""
    try:
        meta = _DECODER.decode(record.body).metadata
    except DECODE_ERRORS as error:
        return str(error)
    told = meta.namespace, meta.name, meta.resource_version
    stored = record.key.namespace, record.key.name, str(record.rv)
    return "" if told == stored else f"it says to be {told}, but is stored as {stored}"
