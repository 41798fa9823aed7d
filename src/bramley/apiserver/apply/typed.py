"""Operations on objects with a schema: validate, list fields, compare, merge, and remove fields.

Values are never modified; results share their unchanged parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bramley.apiserver.apimachinery.patches import same
from bramley.apiserver.apply import fieldpath
from bramley.apiserver.apply.fieldpath import Element, FieldSet, Path
from bramley.apiserver.apply.schema import ANY, Atomic, Deduced, ListSchema, Map, Scalar, Schema
from bramley.apiserver.strategic import go_values

_GO_TYPES: dict[type, str] = {dict: "map[string]interface {}", list: "[]interface {}"}


def validation_error(config: Any, schema: Schema) -> str | None:
    """Return all violations of the schema by a configuration, or None."""
    errors = list(_errors(config, schema, ""))
    if len(errors) > 1:
        return "\n".join(["errors:", *(f"  {each}" for each in errors)])
    return errors[0] if errors else None


def _errors(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if value is None or isinstance(schema, Deduced):
        return
    if isinstance(schema, Atomic):
        yield from _errors(value, schema.inner(), path)
    elif isinstance(schema, Scalar):
        if wrong := _scalar_error(value, schema.type):
            yield f"{path}: {wrong}"
    elif isinstance(schema, Map):
        yield from _map_errors(value, schema, path)
    else:
        yield from _list_errors(value, schema, path)


def _scalar_error(value: Any, expected: str) -> str | None:
    if expected == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{_source(value)}}}"
    if expected == "numeric" and (isinstance(value, bool) or not isinstance(value, int | float)):
        return f"expected numeric (int or float), got {go_values.type_of(value)}"
    if expected == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{go_values.as_text(value)}}}"
    if isinstance(value, dict | list):
        return f"expected any scalar, got &{{{go_values.as_text(value)}}}"
    return None


def _source(value: Any) -> str:
    """Return a value in Go's `%#v` format."""
    return f"{_GO_TYPES.get(type(value), '')}{go_values.as_text(value)}"


def _map_errors(value: Any, schema: Map, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{go_values.as_text(value)}}}"
        return
    for key, each in value.items():
        below = schema.below(key)
        if below is None:
            yield f"{path}.{key}: field not declared in schema"
            # Kubernetes stops at the first unknown field.
            return
        yield from _errors(each, below, f"{path}.{key}")


def _list_errors(value: Any, schema: ListSchema, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got &{{{go_values.as_text(value)}}}"
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        shown = f"[{index}]"
        if not schema.is_plain:
            try:
                element = element_of(item, schema)
            except InvalidItem as wrong:
                yield f"{path}: element {index}: {wrong}"
                return
            shown = fieldpath.format_element(element)
            if element in seen:
                yield f"{path}: duplicate entries for key {shown}"
            seen.add(element)
        yield from _errors(item, schema.item(), f"{path}{shown}")


_ABSENT: Any = object()
_ANY_MAP = Map(item=lambda: ANY)


class InvalidItem(ValueError):
    """The item cannot be identified in its list."""


def _parts(schema: Schema, value: Any) -> Map | ListSchema | None:
    """Return the schema by whose parts the value is owned, or None if it has one owner as a whole."""
    if isinstance(schema, Deduced):
        schema = _ANY_MAP if isinstance(value, dict) else Scalar()
    if isinstance(schema, Map) and isinstance(value, dict):
        return schema
    return schema if isinstance(schema, ListSchema) and isinstance(value, list) else None


def element_of(item: Any, schema_of_list: ListSchema) -> Element:
    """Return the path element of a list item; raise InvalidItem."""
    if not schema_of_list.keys:
        return fieldpath.by_value(_member(item))
    if not isinstance(item, dict):
        kind = "a null element" if item is None else "non-map elements"
        raise InvalidItem(f"associative list with keys may not have {kind}")
    present = {key: item[key] for key in schema_of_list.keys if key in item}
    keys = {**schema_of_list.defaults, **present}
    if not keys:
        names = " ".join(f'"{key}"' for key in schema_of_list.keys)
        raise InvalidItem(
            f"associative list with keys has an element that omits all key fields [{names}] (and doesn't have default values for any key fields)"
        )
    return fieldpath.by_keys(keys)


def _member(item: Any) -> Any:
    wrong = {
        dict: "associative list without keys has an element that's a map type",
        list: "not supported: associative list with lists as elements",
        type(None): "associative list without keys has an element that's an explicit null",
    }.get(type(item))
    if wrong:
        raise InvalidItem(wrong)
    return item


def _element_or_empty(item: Any, schema_of_list: ListSchema) -> Element:
    try:
        return element_of(item, schema_of_list)
    except InvalidItem:
        return ""


def _items_by_element(value: list[Any], schema_of_list: ListSchema) -> dict[Element, list[Any]]:
    """Return the items of a list by their elements; only live objects may have several items of one element."""
    by_element: dict[Element, list[Any]] = {}
    for item in value:
        if element := _element_or_empty(item, schema_of_list):
            by_element.setdefault(element, []).append(item)
    return by_element


def to_field_set(value: Any, schema: Schema) -> FieldSet:
    """Return the fields that a configuration sets."""
    return fieldpath.from_paths(list(_fields(value, schema, ())))


def _fields(value: Any, schema: Schema, path: Path) -> Iterator[Path]:
    parts = _parts(schema, value)
    if isinstance(parts, Map):
        for key, each in value.items():
            child_path = (*path, fieldpath.by_name(key))
            yield from _fields(each, parts.below(key) or ANY, child_path)
            if each is None or each == {} or key not in parts.fields:
                yield child_path
    elif isinstance(parts, ListSchema):
        for element, items in _items_by_element(value, parts).items():
            # Duplicate items have one owner.
            if len(items) == 1:
                yield from _fields(items[0], parts.item(), (*path, element))
            yield (*path, element)
    elif value is not None or isinstance(schema, Scalar | Atomic):
        yield path


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two objects."""

    added: FieldSet = fieldpath.EMPTY
    modified: FieldSet = fieldpath.EMPTY
    removed: FieldSet = fieldpath.EMPTY


@dataclass(slots=True)
class _Changes:
    added: list[Path] = field(default_factory=list)
    modified: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)

    def leaf(self, old: Any, new: Any, path: Path) -> None:
        if old is _ABSENT:
            self.added.append(path)
        elif new is _ABSENT:
            self.removed.append(path)
        elif not same(old, new):
            self.modified.append(path)


def compare(old: Any, new: Any, schema: Schema) -> Comparison:
    """Return the added, modified and removed fields."""
    changes = _Changes()
    _compare(old, new, schema, path=(), changes=changes)
    return Comparison(
        fieldpath.from_paths(changes.added),
        fieldpath.from_paths(changes.modified),
        fieldpath.from_paths(changes.removed),
    )


def _compare(old: Any, new: Any, schema: Schema, *, path: Path, changes: _Changes) -> None:
    if old is new:
        return
    present = old if new is _ABSENT or new is None else new
    parts = _parts(schema, present)
    if parts is None or (_is_empty(old) and _is_empty(new)):
        changes.leaf(old, new, path)
        return
    if isinstance(parts, Map):
        _compare_maps(old, new, parts, path=path, changes=changes)
    else:
        _compare_lists(old, new, parts, path=path, changes=changes)
    if old is _ABSENT:
        changes.added.append(path)
    elif new is _ABSENT:
        changes.removed.append(path)


def _compare_maps(old: Any, new: Any, parts: Map, *, path: Path, changes: _Changes) -> None:
    before = old if isinstance(old, dict) else {}
    after = new if isinstance(new, dict) else {}
    for key in before | after:
        child_path = (*path, fieldpath.by_name(key))
        pair = before.get(key, _ABSENT), after.get(key, _ABSENT)
        _compare(*pair, parts.below(key) or ANY, path=child_path, changes=changes)


def _compare_lists(old: Any, new: Any, parts: ListSchema, *, path: Path, changes: _Changes) -> None:
    before = _items_by_element(old, parts) if isinstance(old, list) else {}
    after = _items_by_element(new, parts) if isinstance(new, list) else {}
    for element in before | after:
        child_path = (*path, element)
        olds, news = before.get(element, []), after.get(element, [])
        if len(olds) > 1 and len(news) > 1:
            changes.leaf(olds, news, child_path)
            continue
        # Duplicates that begin or end count as added or removed, and so does the single item that replaces them.
        old_item, new_item = (_ABSENT if len(each) != 1 else each[0] for each in (olds, news))
        if old_item is not _ABSENT or new_item is not _ABSENT:
            _compare(old_item, new_item, parts.item(), path=child_path, changes=changes)
        if len(olds) > 1:
            changes.removed.append(child_path)
        elif len(news) > 1:
            changes.added.append(child_path)


def _is_empty(value: Any) -> bool:
    return value is _ABSENT or value is None or value in ({}, [])


def merge(live: Any, config: Any, schema: Schema) -> Any:
    """Return the live value with the configuration merged in."""
    parts = _parts(schema, config)
    if config is None and isinstance(live, (dict, list)) and _parts(schema, live) is not None:
        return live
    if isinstance(parts, Map) and isinstance(live, dict):
        merged = dict(live)
        for key, each in config.items():
            exists = key in live
            merged[key] = merge(live[key], each, parts.below(key) or ANY) if exists else each
        return merged
    if isinstance(parts, ListSchema) and isinstance(live, list):
        return _merge_lists(live, config, parts)
    return config


def _merge_lists(live: list[Any], config: list[Any], parts: ListSchema) -> list[Any]:
    """Return the merged list: shared items in the configuration's order, others at their old positions."""
    live_items = _items_by_element(live, parts)
    applied = {element: items[0] for element, items in _items_by_element(config, parts).items()}
    remaining = [(_element_or_empty(item, parts), item) for item in live]
    waiting = [element for element in applied if element in live_items]
    result: list[Any] = []
    position = 0
    for element, item in applied.items():
        while position < len(remaining) and remaining[position][0] != element:
            if remaining[position][0] not in applied:
                result.append(remaining[position][1])
            elif waiting and remaining[position][0] == waiting[0]:
                break
            position += 1
        if position < len(remaining) and remaining[position][0] == element:
            position += 1
        if element in live_items:
            waiting.remove(element)
            existing = live_items[element]
            result.append(merge(existing[0], item, parts.item()) if len(existing) == 1 else item)
        else:
            result.append(item)
    return result + [item for element, item in remaining[position:] if element not in applied]


def remove(value: Any, fields: FieldSet, schema: Schema) -> Any:
    """Return a value without the fields of a set; a field that becomes empty is set to null, an item is removed."""
    parts = _parts(schema, value)
    if not fields or parts is None:
        return value
    if isinstance(parts, Map):
        elements = {key: fieldpath.by_name(key) for key in value}
        return {
            key: _without(each, fields.below(elements[key]), parts.below(key) or ANY)
            for key, each in value.items()
            if elements[key] not in fields.members
        }
    pairs = [(item, _element_or_empty(item, parts)) for item in value]
    items = [
        _without(item, fields.below(element), parts.item())
        for item, element in pairs
        if element not in fields.members
    ]
    return [each for each in items if each is not None]


def _without(value: Any, fields: FieldSet, schema: Schema) -> Any:
    pruned = remove(value, fields, schema)
    return None if pruned in ({}, []) and pruned is not value else pruned


def without_removed_fields(new: Any, old: Any) -> Any:
    """Return a value without the nulls that `remove` left behind."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    return {
        key: without_removed_fields(each, old.get(key))
        for key, each in new.items()
        if each is not None or not isinstance(old.get(key), (dict, list))
    }


def with_named_members(fields: FieldSet, schema: Schema) -> FieldSet:
    """Return the set with all declared fields that have a subset added as members."""
    if isinstance(schema, Atomic):
        schema = schema.inner()
    declared = schema.fields if isinstance(schema, Map) else {}
    extra = {
        element for element in fields.children if element[2:] in declared and element[0] == "f"
    }
    children = {
        element: with_named_members(below, _schema_below(schema, element))
        for element, below in fields.children.items()
    }
    return FieldSet(fields.members | extra, children)


def _schema_below(schema: Schema, element: Element) -> Schema:
    if isinstance(schema, Map) and element[0] == "f":
        return schema.below(element[2:]) or ANY
    return schema.item() if isinstance(schema, ListSchema) else ANY
