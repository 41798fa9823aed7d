"""`FieldSet`: a set of field paths, stored as a tree and encoded as `FieldsV1`.

Path elements are stored in their encoded form: `f:name` a field, `k:{…}` a list item by its keys, `v:…` an item of a set.
Sets are immutable and may share parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

Element = str
Path = tuple[Element, ...]

_KINDS = ("f", "k", "v", "i")


class InvalidFieldSet(ValueError):
    """The value is not a valid `FieldsV1`."""


@dataclass(frozen=True, slots=True)
class FieldSet:
    """The member elements at this level, and the sets below them."""

    members: frozenset[Element] = frozenset()
    children: Mapping[Element, FieldSet] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.members or self.children)

    def __or__(self, other: FieldSet) -> FieldSet:
        children = dict(self.children)
        for element, below in other.children.items():
            own_child = children.get(element)
            children[element] = below if own_child is None else own_child | below
        return FieldSet(self.members | other.members, children)

    def __and__(self, other: FieldSet) -> FieldSet:
        children = {
            element: below & other.children[element]
            for element, below in self.children.items()
            if element in other.children
        }
        return FieldSet(self.members & other.members, _kept(children))

    def __sub__(self, other: FieldSet) -> FieldSet:
        """Return the paths that are not in the other set; a member there does not remove the paths below it."""
        children = {
            element: below - other.children[element] if element in other.children else below
            for element, below in self.children.items()
        }
        return FieldSet(self.members - other.members, _kept(children))

    def below(self, element: Element) -> FieldSet:
        """Return the set below an element."""
        return self.children.get(element, EMPTY)

    def only(self, *elements: Element) -> FieldSet:
        """Return the members and subsets of these elements."""
        selected = set(elements)
        children = {key: each for key, each in self.children.items() if key in selected}
        return FieldSet(self.members & selected, children)

    def without(self, element: Element) -> FieldSet:
        """Return the set without an element and everything below it."""
        children = {key: each for key, each in self.children.items() if key != element}
        return FieldSet(self.members - {element}, children)

    def paths(self, prefix: Path = ()) -> Iterator[Path]:
        """Yield all paths in Kubernetes' order."""
        for element in sorted(self.members, key=_order):
            yield (*prefix, element)
        for element in sorted(self.children, key=_order):
            yield from self.children[element].paths((*prefix, element))

    def to_wire(self) -> dict[str, Any]:
        """Return the set as `FieldsV1`."""
        written: dict[str, Any] = {}
        for element in sorted(self.members | self.children.keys(), key=_order):
            below = self.children[element].to_wire() if element in self.children else {}
            is_both = element in self.members and below
            written[element] = {".": {}, **below} if is_both else below
        return written


EMPTY = FieldSet()


def _kept(children: dict[Element, FieldSet]) -> dict[Element, FieldSet]:
    return {element: below for element, below in children.items() if below}


def from_paths(paths: Iterator[Path] | list[Path]) -> FieldSet:
    """Return the set of these paths; the empty path, the whole object, is never a member."""
    members: set[Element] = set()
    deeper: dict[Element, list[Path]] = {}
    for path in paths:
        if len(path) == 1:
            members.add(path[0])
        elif path:
            deeper.setdefault(path[0], []).append(path[1:])
    return FieldSet(frozenset(members), {key: from_paths(below) for key, below in deeper.items()})


def from_wire(value: Any) -> FieldSet:
    """Return the set of a `FieldsV1`; raise InvalidFieldSet."""
    if not isinstance(value, dict):
        raise InvalidFieldSet("fields must be an object")
    members: set[Element] = set()
    children: dict[Element, FieldSet] = {}
    for key, below in value.items():
        if key == ".":
            continue
        if key[:1] not in _KINDS or key[1:2] != ":" or not isinstance(below, dict):
            raise InvalidFieldSet(f"unknown path element {key}")
        if not below or "." in below:
            members.add(_normal(key))
        if inner := from_wire(below):
            children[_normal(key)] = inner
    return FieldSet(frozenset(members), children)


def _normal(key: str) -> Element:
    if key[0] in "fi":
        return key
    try:
        value = msgspec.json.decode(key[2:])
    except msgspec.DecodeError:
        raise InvalidFieldSet(f"unknown path element {key}") from None
    return by_keys(value) if key[0] == "k" and isinstance(value, dict) else by_value(value)


def by_name(name: str) -> Element:
    """Return the element of a field."""
    return f"f:{name}"


def by_keys(keys: Mapping[str, Any]) -> Element:
    """Return the element of a list item that is identified by keys."""
    return f"k:{msgspec.json.encode(dict(sorted(keys.items()))).decode()}"


def by_value(value: Any) -> Element:
    """Return the element of an item of a list of type set."""
    return f"v:{msgspec.json.encode(value).decode()}"


def format_path(path: Path) -> str:
    """Return a path as messages print it, such as `.spec.containers[name="a"].image`."""
    return "".join(map(format_element, path))


def format_element(element: Element) -> str:
    """Return one element as messages print it."""
    kind, rest = element[0], element[2:]
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = msgspec.json.decode(rest)
        pairs = (f"{key}={msgspec.json.encode(each).decode()}" for key, each in keys.items())
        return f"[{','.join(pairs)}]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def _order(element: Element) -> tuple[int, str]:
    return _KINDS.index(element[0]), element[2:]
