"""`Structural`: a compiled schema that defaults, prunes and validates custom resources.

In addition to value validation it checks embedded resources, and lists of type set and map for duplicates. The schema must be
structural. It is compiled once per version of a CustomResourceDefinition; CEL is loaded only if a schema has rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.schema import cel_rules, structural_validation
from bramley.apiserver.schema.pruning import compile_pruner
from bramley.apiserver.schema.value_validation import compile_validation, ratcheted
from bramley.apiserver.schema.values import (
    ABSENT,
    NO_FIELD,
    Schema,
    Visit,
    child,
    compile_tree,
    copied,
)
from bramley.base.errors import Cause


def compile_uniqueness(schema: Schema) -> Callable[[Any, Any], list[Cause]]:
    """Return a function that finds duplicates, unless the old object already had some."""
    visit = compile_tree(schema, _compile_uniqueness_check)

    def find(value: Any, old: Any) -> list[Cause]:
        if visit is None:
            return []
        errors: list[Cause] = []
        visit(value, ABSENT, "", errors)
        if errors and old is not ABSENT:
            former: list[Cause] = []
            visit(old, ABSENT, "", former)
            return [] if former else errors
        return errors

    return find


def _compile_uniqueness_check(schema: Schema) -> Visit | None:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in {"set", "map"}:
        return None
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else None
    return partial(_find_duplicates, keys)


def _find_duplicates(
    keys: tuple[str, ...] | None, value: Any, _old: Any, path: str, out: list[Cause]
) -> None:
    """Find the duplicates of a set, or with keys, of a map."""
    if type(value) is not list:
        return
    parts = value
    if keys is not None:
        for index, item in enumerate(value):
            if item is not None and type(item) is not dict:
                detail = "must be an object for an array of list-type map"
                out.append(causes.invalid(f"{path}[{index}]", item, detail))
                return
        parts = [{key: item[key] for key in keys if key in item} if item else {} for item in value]
    out += (
        causes.duplicate(f"{path}[{index}]", parts[index]) for index in _duplicate_indexes(parts)
    )


def _duplicate_indexes(items: Iterable[Any]) -> Iterator[int]:
    # Each duplicate is reported once, however often it is repeated.
    seen: dict[bytes, int] = {}
    for index, item in enumerate(items):
        encoded = msgspec.json.encode(item, order="sorted")
        seen[encoded] = seen.get(encoded, 0) + 1
        if seen[encoded] == 2:
            yield index


def compile_embedded(schema: Schema) -> Callable[[Any], list[Cause]]:
    """Return a function that checks the type and metadata of every embedded resource."""
    visit = compile_tree(
        schema, lambda node: _resource if node.get("x-kubernetes-embedded-resource") else None
    )

    def find(value: Any) -> list[Cause]:
        errors: list[Cause] = []
        if visit is not None:
            visit(value, ABSENT, "", errors)
        return errors

    return find


def _resource(value: Any, _old: Any, path: str, out: list[Cause]) -> None:
    if type(value) is not dict:
        return
    _text(value, "apiVersion", path, out)
    _text(value, "kind", path, out)
    version = value.get("apiVersion")
    if type(version) is str and version.count("/") > 1:
        detail = f"unexpected GroupVersion string: {version}"
        out.append(causes.invalid(child(path, "apiVersion"), version, detail))
    _kind(value.get("kind"), child(path, "kind"), out)
    metadata = value.get("metadata", {})
    if type(metadata) is not dict:
        detail = "json: cannot unmarshal into Go value of type v1.ObjectMeta"
        out.append(causes.invalid(child(path, "metadata"), metadata, detail))


def _text(value: dict[str, Any], name: str, path: str, out: list[Cause]) -> None:
    field = child(path, name)
    if name not in value:
        out.append(causes.required(field))
    elif type(value[name]) is not str:
        out.append(causes.invalid(field, value[name], "must be a string"))
    elif not value[name]:
        out.append(causes.invalid(field, "", "must not be empty"))


def _kind(value: Any, field: str, out: list[Cause]) -> None:
    wrong = names.dns1035_label(value.lower()) if type(value) is str and value else []
    if wrong:
        detail = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
        out.append(causes.invalid(field, value, detail))


Defaulter = Callable[[Any], None]


def compile_defaulter(schema: Schema) -> Defaulter:
    """Return a function that sets defaults in place."""
    fields = {name: _Field(inner) for name, inner in (schema.get("properties") or {}).items()}
    defaults = [(name, field) for name, field in fields.items() if field.default is not ABSENT]
    extra = _field_or_none(schema.get("additionalProperties"))
    items = _field_or_none(schema.get("items"))

    def apply(value: Any) -> None:
        if type(value) is dict:
            _drop_nulls(value, fields, extra)
            for name, field in defaults:
                if name not in value or (value[name] is None and not field.nullable):
                    value[name] = copied(field.default)
            for name, item in value.items():
                inner = fields.get(name, extra)
                if inner is not None and (type(item) is dict or type(item) is list):
                    inner.apply(item)
        elif type(value) is list and items is not None:
            _default_items(value, items)

    return apply


class _Field:
    """The default of a field, whether it is nullable, and the defaulter of its children."""

    __slots__ = ("apply", "default", "nullable")

    def __init__(self, schema: Schema) -> None:
        default = schema.get("default")
        self.default = ABSENT if default is None else default
        self.nullable = bool(schema.get("nullable"))
        self.apply = compile_defaulter(schema)


def _field_or_none(schema: Any) -> _Field | None:
    return _Field(schema) if isinstance(schema, Mapping) else None


def _drop_nulls(value: dict[str, Any], fields: Mapping[str, _Field], extra: _Field | None) -> None:
    for name in [name for name, item in value.items() if item is None]:
        field = fields.get(name, extra)
        if field is None or field.nullable:
            continue
        if field.default is ABSENT:
            del value[name]
        else:
            value[name] = copied(field.default)


def _default_items(value: list[Any], items: _Field) -> None:
    for index, item in enumerate(value):
        if item is None and not items.nullable and items.default is not ABSENT:
            value[index] = copied(items.default)
        if value[index] is not None:
            items.apply(value[index])


Json = dict[str, Any]
# After these violations the rules are not run, since the object differs too much from its schema.
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_RULES_SKIPPED = causes.invalid(
    NO_FIELD,
    None,
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
)


class Structural:
    """The compiled schema of one version of a custom resource."""

    __slots__ = ("_default", "_embedded", "_prune", "_rules", "_unique", "_validate", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._default = compile_defaulter(schema)
        self._prune = compile_pruner(schema, root=True)
        self._validate = compile_validation(schema)
        self._embedded = compile_embedded(schema)
        self._unique = compile_uniqueness(schema)
        self._rules = cel_rules.compile_rules(schema)

    def apply_defaults(self, value: Json) -> None:
        """Set defaults in place, and drop nulls of fields that are not nullable."""
        self._default(value)

    def prune(self, value: Json) -> list[str]:
        """Drop unknown fields in place, and return their sorted paths."""
        pruned: list[str] = []
        self._prune(value, "", pruned)
        return sorted(pruned)

    def validate(self, value: Json, old: Json | None = None) -> list[Cause]:
        """Return all violations, except those by values that are unchanged since `old`."""
        before: Any = ABSENT if old is None else old
        errors: list[Cause] = []
        ratcheted(self._validate, value, before, "", errors)
        errors += self._embedded(value)
        errors += self._unique(value, before)
        if self._rules is not None:
            if any(cause.reason in _BLOCKING for cause in errors):
                errors.append(_RULES_SKIPPED)
            else:
                self._rules(value, before, "", errors)
        return list(dict.fromkeys(errors))


def compile(schema: Schema) -> Structural:
    """Compile a structural schema."""
    return Structural(schema)


def check(schema: Schema, path: str = "") -> list[Cause]:
    """Return what keeps the schema from being structural, sorted."""
    return structural_validation.structural_causes(schema, path)
