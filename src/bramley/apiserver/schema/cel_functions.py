"""Functions that Kubernetes adds to CEL: for strings, lists, sets and regular expressions.

Those for quantities, URLs and IP addresses are missing; a rule that calls them is rejected with its definition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from bramley.apiserver.schema.patterns import compile_pattern


def char_at(text: str, index: int) -> str:
    """Return the character at an index; empty at the end of the string."""
    if not 0 <= index <= len(text):
        raise IndexError(f"index out of range: {index}")
    return text[index : index + 1]


def index_of(where: Any, target: Any, start: int = 0) -> int:
    """Return the first index of a substring or a list item, or -1."""
    if isinstance(where, str):
        return where.find(target, start)
    return next((place for place, item in enumerate(where) if item == target), -1)


def last_index_of(where: Any, target: Any) -> int:
    """Return the last index of a substring or a list item, or -1."""
    if isinstance(where, str):
        return where.rfind(target)
    return max((place for place, item in enumerate(where) if item == target), default=-1)


def substring(text: str, start: int, end: int | None = None) -> str:
    """Return the part of a string between two indexes."""
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise IndexError(f"index out of range: {start}, {stop}")
    return text[start:stop]


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    """Return the string with a substring replaced, everywhere or at most `limit` times."""
    return text.replace(old, new, limit)


def split(text: str, separator: str, limit: int = -1) -> list[str]:
    """Return the pieces between separators, at most `limit` of them."""
    if limit == 0:
        return []
    pieces = text.split(separator) if separator else list(text)
    if limit < 0 or len(pieces) <= limit:
        return pieces
    return [*pieces[: limit - 1], separator.join(pieces[limit - 1 :])]


def join(pieces: list[str], separator: str = "") -> str:
    """Return the pieces joined to one string."""
    return separator.join(pieces)


def lower_ascii(text: str) -> str:
    """Return the string with A to Z in lower case."""
    return "".join(char.lower() if char.isascii() else char for char in text)


def upper_ascii(text: str) -> str:
    """Return the string with a to z in upper case."""
    return "".join(char.upper() if char.isascii() else char for char in text)


def is_sorted(items: list[Any]) -> bool:
    """Return whether no item is smaller than the one before it."""
    return all(one <= other for one, other in itertools.pairwise(items))


def total(items: list[Any]) -> Any:
    """Return the sum of a list, in the type of its items."""
    return sum(items[1:], start=items[0]) if items else 0


def find(text: str, pattern: str) -> str:
    """Return the first match of a pattern, or an empty string."""
    return next(_matches(text, pattern), "")


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return the matches of a pattern, at most `limit` of them."""
    return list(itertools.islice(_matches(text, pattern), None if limit < 0 else limit))


def contains_all(items: list[Any], target: list[Any]) -> bool:
    """Return whether the list contains every one of the items."""
    return all(item in items for item in target)


def equivalent(items: list[Any], others: list[Any]) -> bool:
    """Return whether two lists contain the same items, in any order and number."""
    return contains_all(items, others) and contains_all(others, items)


def intersects(items: list[Any], others: list[Any]) -> bool:
    """Return whether two lists have an item in common."""
    return any(item in others for item in items)


def _matches(text: str, pattern: str) -> Iterator[str]:
    return (match.group() for match in compile_pattern(pattern).finditer(text))


FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "charAt": char_at,
        "indexOf": index_of,
        "lastIndexOf": last_index_of,
        "substring": substring,
        "replace": replace,
        "split": split,
        "join": join,
        "lowerAscii": lower_ascii,
        "upperAscii": upper_ascii,
        "trim": str.strip,
        "isSorted": is_sorted,
        "sum": total,
        "min": min,
        "max": max,
        "find": find,
        "findAll": find_all,
        "sets.contains": contains_all,
        "sets.equivalent": equivalent,
        "sets.intersects": intersects,
    }
)
