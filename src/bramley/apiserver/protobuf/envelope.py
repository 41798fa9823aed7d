"""What is around every object in Kubernetes' protobuf form: four bytes that say so, the kind, and the object's own bytes."""

from __future__ import annotations

from typing import NamedTuple

from bramley.apiserver.protobuf import leaves, wire

MAGIC = b"k8s\0"


class Envelope(NamedTuple):
    """What a body says that it is, and the message of that kind."""

    api_version: str
    kind: str
    message: memoryview


def open_envelope(data: bytes) -> Envelope:
    """Return what a body holds; raise Malformed."""
    if not data:
        raise wire.Malformed("empty data")
    if not data.startswith(MAGIC):
        shown = " ".join(str(byte) for byte in MAGIC)
        why = f"provided data does not appear to be a protobuf message, expected prefix [{shown}]"
        raise wire.Malformed(why)
    if len(data) == len(MAGIC):
        raise wire.Malformed("empty body")
    api_version = kind = ""
    message = memoryview(b"")
    for entry in wire.entries(memoryview(data)[len(MAGIC) :], "Unknown"):
        if entry.number == 1:
            api_version, kind = _identity(entry)
        elif entry.number == 2:
            message = entry.as_bytes("raw")
    return Envelope(api_version, kind, message)


def _identity(entry: wire.Entry) -> tuple[str, str]:
    found = {
        each.number: leaves.text(each.as_bytes("apiVersion"))
        for each in wire.entries(entry.as_bytes("typeMeta"), "TypeMeta")
        if each.number in {1, 2}
    }
    return found.get(1, ""), found.get(2, "")
