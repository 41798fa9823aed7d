"""Merge patches (RFC 7386) and JSON patches (RFC 6902) on plain JSON values; no object, no kind, no HTTP.

A merge copies only what it changes, so unchanged values stay the same objects in memory and are cheap to compare.
JSON patches follow the library that Kubernetes uses where it is more lenient than the RFC: `replace` and `copy` may name a
key that is missing, negative indexes count from the end, and testing a missing key against null succeeds.
"""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]
Operation = dict[str, Any]

OPERATIONS_LIMIT = 10_000


class PatchFailed(ValueError):
    """An operation cannot be applied to this document."""


def merge(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch applied; neither is changed, and unchanged values are shared."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def apply(document: Any, operations: list[Operation]) -> Any:
    """Return the document after all operations; it is changed in place and must not be used if this raises."""
    for operation in operations:
        apply_one = _OPERATIONS.get(operation.get("op", ""))
        if apply_one is None:
            raise PatchFailed(f"unexpected kind: {operation.get('op', 'unknown')}")
        document = apply_one(document, operation)
    return document


def _add(document: Any, operation: Operation) -> Any:
    return _put(document, _pointer(operation, "path"), operation.get("value"))


def _put(document: Any, pointer: str, value: Any) -> Any:
    holder, key = _holder(document, pointer)
    if isinstance(holder, dict):
        holder[key] = value
    elif key == "-":
        holder.append(value)
    else:
        holder.insert(_index(key, len(holder) + 1), value)
    return document


def _remove(document: Any, operation: Operation) -> Any:
    _pop(document, _pointer(operation, "path"))
    return document


def _pop(document: Any, pointer: str) -> Any:
    holder, key = _holder(document, pointer)
    if isinstance(holder, list):
        return holder.pop(_index(key, len(holder)))
    if key not in holder:
        raise PatchFailed(f"unable to remove nonexistent key: {key}")
    return holder.pop(key)


def _replace(document: Any, operation: Operation) -> Any:
    pointer = _pointer(operation, "path")
    value = operation.get("value")
    if not pointer:
        if not isinstance(value, (dict, list)):
            raise PatchFailed("the whole document can only be replaced by an object or a list")
        return value
    holder, key = _holder(document, pointer)
    if isinstance(holder, list):
        holder[_index(key, len(holder))] = value
    else:
        holder[key] = value
    return document


def _move(document: Any, operation: Operation) -> Any:
    origin = _pointer(operation, "from")
    destination = _pointer(operation, "path")
    return _put(document, destination, _pop(document, origin))


def _copy(document: Any, operation: Operation) -> Any:
    value = _value_at(document, _pointer(operation, "from"))
    # A copy: a later operation on one place must not change the other.
    return _put(
        document, _pointer(operation, "path"), msgspec.json.decode(msgspec.json.encode(value))
    )


def _test(document: Any, operation: Operation) -> Any:
    pointer = _pointer(operation, "path")
    current = _value_at(document, pointer) if pointer else document
    if not same(current, operation.get("value")):
        raise PatchFailed(f"testing value {pointer} failed")
    return document


def same(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _value_at(document: Any, pointer: str) -> Any:
    holder, key = _holder(document, pointer)
    return holder[_index(key, len(holder))] if isinstance(holder, list) else holder.get(key)


def _holder(document: Any, pointer: str) -> tuple[Any, str]:
    """Return the object or list that contains the value at the pointer, and the last part of the pointer."""
    if "/" not in pointer:
        raise PatchFailed(f"not a pointer: {pointer}")
    *parents, last = (_unescaped(segment) for segment in pointer.split("/")[1:])
    holder = document
    for segment in parents:
        holder = _step(holder, segment)
    if not isinstance(holder, (dict, list)):
        raise PatchFailed(f"doc is missing path: {pointer}")
    return holder, last


def _step(holder: Any, segment: str) -> Any:
    if isinstance(holder, list):
        return holder[_index(segment, len(holder))]
    child = holder.get(segment) if isinstance(holder, dict) else None
    if child is None:
        raise PatchFailed(f"doc is missing path: {segment}")
    return child


def _index(segment: str, length: int) -> int:
    try:
        index = int(segment)
    except ValueError:
        raise PatchFailed(f"not an index: {segment}") from None
    if not -length <= index < length:
        raise PatchFailed(f"unable to access invalid index: {index}")
    return index + length if index < 0 else index


def _pointer(operation: Operation, field: str) -> str:
    pointer = operation.get(field)
    if not isinstance(pointer, str):
        raise PatchFailed(f"the operation has no {field}")
    return pointer


def _unescaped(segment: str) -> str:
    return segment.replace("~1", "/").replace("~0", "~")


_OPERATIONS = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
