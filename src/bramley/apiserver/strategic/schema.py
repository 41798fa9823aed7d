"""How the fields of a built-in kind are merged, looked up as a patch goes down into an object."""

from __future__ import annotations

from typing import NamedTuple

from bramley.apiserver.fields import structs


class NoSuchField(ValueError):
    """A patch goes into a field that the kind does not have, or into one of another sort."""


class Looked(NamedTuple):
    """What is known about a field: the type below it, and how a patch is merged there."""

    type: str
    strategy: str
    merge_key: str


def below(type_name: str, key: str) -> Looked:
    """Return what a struct's field holds, for merging objects."""
    plain = type_name.removeprefix("*")
    if not structs.is_struct(plain):
        sort = _sort(plain)
        raise NoSuchField(
            f"merging an object in json but data type is not struct, instead is: {sort}"
        )
    struct = structs.struct(plain)
    field = struct.named.get(key) or _folded(struct, key)
    if field is None:
        message = f'unable to find api field in struct {struct.go_name} for the json field "{key}"'
        raise NoSuchField(message)
    return Looked(field.type, field.strategy, field.merge_key)


def of_items(type_name: str, key: str) -> Looked:
    """Return what the items of a struct's field are, for merging lists."""
    found = below(type_name, key)
    plain = found.type.removeprefix("*").removeprefix("<")
    if not plain.startswith("[]"):
        sort = _sort(type_name.removeprefix("*"))
        raise NoSuchField(f"expected slice or array type, but got: {sort}")
    if plain.startswith("[][]"):
        raise NoSuchField("unexpected slice of slice")
    return Looked(plain[2:], found.strategy, found.merge_key)


def sort_of(type_name: str) -> str:
    """Return the kind that Go's reflection names for a type, pointers included."""
    return "ptr" if type_name.startswith("*") else _sort(type_name)


def _sort(plain: str) -> str:
    if plain.startswith("{}"):
        return "map"
    if plain.startswith(("[]", "<[]")) or plain == "bytes":
        return "slice"
    return plain if plain in {"string", "bool", "int32", "int64", "float64"} else "struct"


def _folded(struct: structs.Struct, key: str) -> structs.Field | None:
    wanted = key.casefold()
    return next((each for name, each in struct.named.items() if name.casefold() == wanted), None)
