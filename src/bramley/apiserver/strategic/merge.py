"""Strategic merge patches of built-in kinds, with the results of Kubernetes' strategicpatch library.

The object is not modified, and the result shares its unchanged parts. The patch is consumed: directives are removed from it
on the way, and error messages print the rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bramley.apiserver.fields import structs
from bramley.apiserver.strategic import go_values, lists
from bramley.apiserver.strategic.lists import DIRECTIVE, BadPatch, Unmergeable


class NoSuchField(ValueError):
    """The patch refers to a field that the kind does not have, or that has another type."""


class PatchMeta(NamedTuple):
    """The type of a field, and how a patch is merged into it."""

    type: str
    strategy: str
    merge_key: str


def lookup_field(type_name: str, key: str) -> PatchMeta:
    """Return the patch metadata of a struct's field, for merging objects."""
    plain = type_name.removeprefix("*")
    if not structs.is_struct(plain):
        sort = _plain_kind(plain)
        raise NoSuchField(
            f"merging an object in json but data type is not struct, instead is: {sort}"
        )
    struct = structs.struct(plain)
    field = struct.by_name.get(key) or _find_ignoring_case(struct, key)
    if field is None:
        message = f'unable to find api field in struct {struct.go_name} for the json field "{key}"'
        raise NoSuchField(message)
    return PatchMeta(field.type, field.strategy, field.merge_key)


def lookup_items(type_name: str, key: str) -> PatchMeta:
    """Return the patch metadata of a list field's items, for merging lists."""
    meta = lookup_field(type_name, key)
    plain = meta.type.removeprefix("*").removeprefix("<")
    if not plain.startswith("[]"):
        sort = _plain_kind(type_name.removeprefix("*"))
        raise NoSuchField(f"expected slice or array type, but got: {sort}")
    if plain.startswith("[][]"):
        raise NoSuchField("unexpected slice of slice")
    return PatchMeta(plain[2:], meta.strategy, meta.merge_key)


def go_kind(type_name: str) -> str:
    """Return the `reflect.Kind` of a type, including pointers."""
    return "ptr" if type_name.startswith("*") else _plain_kind(type_name)


def _plain_kind(plain: str) -> str:
    if plain.startswith("{}"):
        return "map"
    if plain.startswith(("[]", "<[]")) or plain == "bytes":
        return "slice"
    return plain if plain in {"string", "bool", "int32", "int64", "float64"} else "struct"


def _find_ignoring_case(struct: structs.Struct, key: str) -> structs.Field | None:
    folded = key.casefold()
    return next((each for name, each in struct.by_name.items() if name.casefold() == folded), None)


Json = dict[str, Any]

RETAIN = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
ORDER = "$setElementOrder"

_BAD_RETAIN = "invalid patch format of retainKeys"
_BAD_ORDER = "invalid patch format of setElementOrder list"
_BAD_PRIMITIVES = "invalid patch format of primitive list"


def merge(original: Json, patch: Json, type_name: str) -> Json:
    """Return the object with the patch applied; raise Unmergeable or NoSuchField."""
    if DIRECTIVE in patch:
        return _apply_directive(patch)
    result = _retain_keys(original, patch)
    for key in [each for each in patch if each.startswith(ORDER)]:
        _merge_ordered(result, patch, key, type_name)
    for key, value in list(patch.items()):
        _merge_field(result, key, value, type_name)
    return result


def _apply_directive(patch: Json) -> Json:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        del patch[DIRECTIVE]
        return patch
    if directive == "delete":
        return {}
    raise _unknown_directive(directive, patch)


def _unknown_directive(directive: Any, patch: Json) -> Unmergeable:
    shown = go_values.as_text(directive)
    return Unmergeable(f"unknown patch type: {shown} in map: {go_values.as_text(patch)}")


def _retain_keys(original: Json, patch: Json) -> Json:
    """Return a copy of the original with only the keys in `$retainKeys`, all if there is no such directive."""
    if RETAIN not in patch:
        return dict(original)
    keys = patch.pop(RETAIN)
    if not isinstance(keys, list):
        raise BadPatch(_BAD_RETAIN)
    retained = {each for each in keys if isinstance(each, str)}
    for key, value in patch.items():
        if value is not None and key not in retained and not key.startswith((DELETE_FROM, ORDER)):
            raise BadPatch(_BAD_RETAIN)
    return {key: value for key, value in original.items() if key in retained}


def _merge_field(result: Json, key: str, value: Any, type_name: str) -> None:
    is_deletion = key.startswith(DELETE_FROM)
    if is_deletion:
        key = _list_name(key, DELETE_FROM, _BAD_PRIMITIVES)
    if value is None:
        result.pop(key, None)
    elif key not in result or type(result[key]) is not type(value):
        if not is_deletion:
            _set(result, key, _without_nulls(value))
    elif isinstance(value, dict):
        meta = lookup_field(type_name, key)
        replaced = meta.strategy == "replace"
        result[key] = value if replaced else merge(result[key], value, meta.type)
    elif isinstance(value, list):
        meta = lookup_items(type_name, key)
        result[key] = _merged_list(result[key], value, meta, is_deletion=is_deletion)
    else:
        result[key] = value


def _list_name(key: str, prefix: str, wrong: str) -> str:
    first, slash, name = key.partition("/")
    if not slash or first != prefix:
        raise BadPatch(wrong)
    return name


def _set(result: Json, key: str, value: Any) -> None:
    result.pop(key, None)
    kept, value = _strip_directives(value)
    if kept:
        result[key] = value


def _without_nulls(value: Any) -> Any:
    """Drop nulls in place, from a part of a patch that has no counterpart in the object."""
    if isinstance(value, dict):
        for key in [key for key, each in value.items() if each is None]:
            del value[key]
        for each in value.values():
            _without_nulls(each)
    elif isinstance(value, list):
        for each in value:
            _without_nulls(each)
    return value


def _strip_directives(value: Any) -> tuple[bool, Any]:
    """Return whether a part of a patch without counterpart is kept, and that part without directives."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return False, None
        pairs = [(key, *_strip_directives(each)) for key, each in value.items()]
        return True, {key: each for key, kept, each in pairs if kept}
    if isinstance(value, list):
        return True, [each for kept, each in map(_strip_directives, value) if kept]
    return True, value


def _merged_list(
    current: list[Any], patch: list[Any], meta: PatchMeta, *, is_deletion: bool = False
) -> list[Any]:
    if meta.strategy != "merge" and not is_deletion:
        return patch
    if not current and not patch:
        return current
    if not lists.are_objects(current, patch):
        if is_deletion:
            return [each for each in current if lists.index_of(patch, each) < 0]
        merged = list(_distinct([*current, *patch]))
        return lists.sort_by_patch(merged, patch=patch, current=current, key="", objects=False)
    if not meta.merge_key:
        sort = go_kind(meta.type)
        raise Unmergeable(f"cannot merge lists without merge key for {sort}")
    current, patch = _apply_item_directives(current, patch, meta.merge_key)
    merged = _merged_objects(current, patch, meta)
    return lists.sort_by_patch(
        merged, patch=patch, current=current, key=meta.merge_key, objects=True
    )


def _distinct(values: list[Any]) -> list[Any]:
    distinct: list[Any] = []
    for each in values:
        if lists.index_of(distinct, each) < 0:
            distinct.append(each)
    return distinct


def _apply_item_directives(
    current: list[Any], patch: list[Any], key: str
) -> tuple[list[Any], list[Any]]:
    """Apply list items that are directives; return the rest of the list and of the patch."""
    plain = [each for each in patch if DIRECTIVE not in each]
    replaces = False
    for each in patch:
        directive = each.get(DIRECTIVE, "")
        if directive == "delete":
            value = lists.key_of(each, key)
            current = [item for item in current if lists.index_by_key([item], key, value) < 0]
        elif directive == "merge":
            raise Unmergeable("merging lists cannot yet be specified in the patch")
        elif directive == "replace":
            replaces = True
        elif DIRECTIVE in each:
            raise _unknown_directive(directive, each)
    return (plain, []) if replaces else (current, plain)


def _merged_objects(current: list[Any], patch: list[Any], meta: PatchMeta) -> list[Any]:
    merged = list(current)
    for each in patch:
        at = lists.index_by_key(merged, meta.merge_key, lists.key_of(each, meta.merge_key))
        if at < 0:
            merged.append(each)
        else:
            merged[at] = merge(merged[at], each, meta.type)
    return merged


def _merge_ordered(result: Json, patch: Json, directive: str, type_name: str) -> None:
    """Merge a list that has `$setElementOrder`, and remove both from the patch."""
    order = patch.pop(directive)
    if not isinstance(order, list):
        raise lists.wrong_type([], order)
    key = _list_name(directive, ORDER, _BAD_ORDER)
    current, patched = _as_list(result, key), _as_list(patch, key)
    meta = lookup_items(type_name, key)
    _check_order(patched or [], order, meta.merge_key)
    if patched is None and current is None:
        return
    merged = _merge_or_copy(current, patched, meta)
    objects = lists.are_objects(current or [], patched or [])
    before = current or []
    if objects and current and patched and meta.merge_key and meta.strategy == "merge":
        before = lists.backing_array(current, patched, meta.merge_key)
    result[key] = lists.sort_by_patch(
        merged, patch=order, current=before, key=meta.merge_key, objects=objects
    )
    patch.pop(key, None)


def _merge_or_copy(
    current: list[Any] | None, patched: list[Any] | None, meta: PatchMeta
) -> list[Any]:
    if patched is None:
        return current or []
    if current is None:
        return list(_strip_directives(patched)[1])
    return _merged_list(current, patched, meta)


def _as_list(holder: Json, key: str) -> list[Any] | None:
    value = holder.get(key)
    if key in holder and not isinstance(value, list):
        raise lists.wrong_type([], value)
    return value


def _check_order(patched: list[Any], order: list[Any], key: str) -> None:
    """Raise Unmergeable unless the items of a patch are in the order of its own `$setElementOrder`."""
    if not patched or not order:
        return
    if key and not all(isinstance(each, dict) for each in patched):
        raise lists.wrong_type({}, next(each for each in patched if not isinstance(each, dict)))
    waiting = [each for each in patched if not (key and each.get(DIRECTIVE) == "delete")]
    at = 0
    for each in order:
        while at < len(waiting) and isinstance(waiting[at], dict) and DIRECTIVE in waiting[at]:
            at += 1
        if at == len(waiting):
            return
        pair = (lists.key_of(item, key) if key else item for item in (waiting[at], each))
        at += lists.is_same(*pair)
    if at < len(waiting):
        raise Unmergeable(
            f"The order in patch list:\n{go_values.as_text(patched)}\n doesn't match {ORDER} list:\n{go_values.as_text(order)}\n"
        )
