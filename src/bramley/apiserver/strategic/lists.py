"""Lists in strategic merge patches: finding items by their merge key, and the order of a merged list."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.strategic import go_values

DIRECTIVE = "$patch"


class Unmergeable(ValueError):
    """The patch cannot be merged; the message is Kubernetes'."""


class BadPatch(Unmergeable):
    """A directive of the patch is malformed."""


class ListOfLists(Unmergeable):
    """Lists of lists have no strategic merge."""

    def __init__(self) -> None:
        super().__init__("lists of lists are not supported")


def is_same(left: Any, right: Any) -> bool:
    """Return whether two scalars are the same value of the same type."""
    return type(left) is type(right) and bool(left == right)


def index_of(items: list[Any], value: Any) -> int:
    """Return the index of a scalar in a list, or -1."""
    return next((at for at, each in enumerate(items) if is_same(each, value)), -1)


def index_by_key(items: list[Any], key: str, value: Any) -> int:
    """Return the index of the item with this merge key, or -1."""
    for at, each in enumerate(items):
        if not isinstance(each, dict):
            raise Unmergeable(f"value for key {at} is not a map")
        if key in each and is_same(each[key], value):
            return at
    return -1


def key_of(item: Any, key: str) -> Any:
    """Return the merge key of an item; raise Unmergeable if it has none."""
    if not isinstance(item, dict):
        raise wrong_type({}, item)
    if key not in item:
        raise Unmergeable(
            f"map: {go_values.as_text(item)} does not contain declared merge key: {key}"
        )
    return item[key]


def wrong_type(expected: Any, actual: Any) -> Unmergeable:
    """Return the error for a value of the wrong type."""
    types = go_values.type_of(expected), go_values.type_of(actual)
    return Unmergeable("expected a {}, but received a {}".format(*types))


def are_objects(*lists: list[Any]) -> bool:
    """Return whether the items are objects; raise Unmergeable unless all are of one mergeable type."""
    types = {type(item) for each in lists for item in each}
    if not types:
        raise Unmergeable("no elements in any of the given slices")
    first = next(item for each in lists for item in each)
    if isinstance(first, list):
        raise ListOfLists
    if len(types) > 1:
        shown = go_values.as_text(list(lists))
        raise Unmergeable(f"list element types are not identical: {shown}")
    return types == {dict}


def sort_by_patch(
    merged: list[Any], *, patch: list[Any], current: list[Any], key: str, objects: bool
) -> list[Any]:
    """Return a merged list with the items of the patch in its order, and the others between them as before."""
    order = [key_of(each, key) for each in patch] if key else patch
    before = [key_of(each, key) if objects else each for each in current]
    patched: list[tuple[Any, Any]] = []
    others: list[tuple[Any, Any]] = []
    for item in merged:
        value = key_of(item, key) if key else item
        (others if index_of(order, value) < 0 else patched).append((item, value))
    patched.sort(key=lambda each: index_of(order, each[1]))
    others.sort(key=lambda each: index_of(before, each[1]))
    return _interleaved(others, patched, before)


def _interleaved(
    left: list[tuple[Any, Any]], right: list[tuple[Any, Any]], before: list[Any]
) -> list[Any]:
    """Return both lists interleaved: a left item precedes a right one only if it did so before."""
    result, at_left = [], 0
    for item, value in right:
        limit = index_of(before, value)
        while at_left < len(left) and 0 <= index_of(before, left[at_left][1]) < limit:
            result.append(left[at_left][0])
            at_left += 1
        result.append(item)
    return result + [item for item, _ in left[at_left:]]


def backing_array(current: list[Any], patch: list[Any], key: str) -> list[Any]:
    """Return the backing array of a list after Go's merge, in which new items overwrite the space of deleted ones.

    Kubernetes takes the order of the items that the patch does not name from this array, so the order is observable.
    """
    backing, length = list(current), len(current)
    for item in patch:
        if item.get(DIRECTIVE) != "delete":
            continue
        while (at := index_by_key(backing[:length], key, item.get(key))) >= 0:
            backing[at : length - 1] = backing[at + 1 : length]
            length -= 1
    if any(item.get(DIRECTIVE) == "replace" for item in patch):
        return backing
    for item in patch:
        if DIRECTIVE not in item and index_by_key(backing[:length], key, item.get(key)) < 0:
            backing[length : length + 1] = [item]
            length += 1
    return backing[: len(current)]
