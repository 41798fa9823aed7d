"""The structs of the built-in kinds, from data that `tools/go_fields.py` extracts from the Go types.

A type is a string: `string`, `*int64` (a pointer), `[]x` (a list), `{}x` (a map), `<[]string` (a list in its own message), a
special type such as `time`, or the name of a struct such as `core/v1.Pod`. The data is loaded on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `number` on the wire, `strategy` and `merge_key` for patches, the rest for server-side apply."""

    name: str
    number: int
    type: str
    is_omitted_empty: bool = False
    is_inline: bool = False
    strategy: str = ""
    merge_key: str = ""
    list_type: str = ""
    map_type: str = ""
    map_keys: tuple[str, ...] = ()
    default: str = ""

    @property
    def plain(self) -> str:
        """Return the type without the pointer prefix."""
        return self.type.removeprefix("*")


@dataclass(frozen=True, slots=True)
class Struct:
    """The fields of one struct: `fields` as Go declares them, `by_name` as in JSON, with inlined structs resolved."""

    name: str
    fields: tuple[Field, ...]
    by_name: Mapping[str, Field]
    is_atomic: bool = False

    @property
    def go_name(self) -> str:
        """Return the name as Go's reflection prints it."""
        return self.name.rpartition(".")[2]


@cache
def _data() -> dict[str, dict[str, str]]:
    text = resources.files("bramley.apiserver.fields").joinpath("fields.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])


def of_kind(api_version: str, kind: str) -> str | None:
    """Return the struct of a built-in kind, or None if there is none."""
    group, _, version = api_version.rpartition("/")
    package = group.partition(".")[0] or "core"
    for each in (f"{package}/{version}.{kind}", f"meta/v1.{kind}"):
        if each in _data():
            return each
    return None


def is_struct(type_name: str) -> bool:
    """Return whether a type is a known struct."""
    return type_name in _data()


@cache
def struct(name: str) -> Struct:
    """Return a struct by its name."""
    entries = dict(_data()[name])
    is_atomic = entries.pop("!", "") == "atomic"
    identity = ("kind", "apiVersion") if entries.pop("@", "") else ()
    fields = tuple(_field(key, text) for key, text in entries.items())
    by_name = {each: Field(each, 0, "string", is_omitted_empty=True) for each in identity}
    for each in fields:
        if each.is_inline:
            by_name.update(struct(each.plain).by_name)
        else:
            by_name[each.name] = each
    return Struct(name, fields, by_name, is_atomic)


def _field(key: str, text: str) -> Field:
    number, type_name, *marks = text.split(" ")
    options = dict(each.split("=", 1) for each in marks if "=" in each)
    return Field(
        name=key.removeprefix("~"),
        number=int(number),
        type=type_name,
        is_omitted_empty="o" in marks,
        is_inline=key.startswith("~"),
        strategy=_strategy(options.get("p", "")),
        merge_key=options.get("k", ""),
        list_type=options.get("l", ""),
        map_type=options.get("m", options.get("s", "")),
        map_keys=tuple(options["i"].split(",")) if "i" in options else (),
        default=options.get("d", ""),
    )


def _strategy(text: str) -> str:
    # `retainKeys` matters only for creating patches; a patch itself names the keys to retain.
    return next((each for each in text.split(",") if each != "retainKeys"), "")
