"""Validation of single keywords of a schema: supported ones, their combinations, and CEL rules that compile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.schema.cel import BadExpression, Expression, reject_unknown_fields
from bramley.apiserver.schema.field_paths import BadPath, find
from bramley.apiserver.schema.values import META_FIELDS, Schema
from bramley.base.errors import Cause

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


@dataclass(frozen=True, slots=True)
class _Context:
    """The position in the schema, as far as rules depend on it."""

    path: str
    root: bool = False
    resource: bool = (
        False  # the whole object or an embedded one: `self` has apiVersion, kind and metadata
    )
    in_metadata: bool = False
    no_default: str = ""
    uncorrelated: str = ""

    def child(self, step: str) -> _Context:
        return replace(self, path=f"{self.path}.{step}", root=False, resource=False)


def keyword_causes(schema: Schema, path: str) -> list[Cause]:
    """Return the violations in the keywords of a schema, at every level."""
    return list(_node(schema, _Context(path, root=True, resource=True)))


def _node(schema: Schema, at: _Context) -> Iterator[Cause]:
    errors = [*_plain(schema, at), *_list_type(schema, at.path)]
    for rule, field in _rules(schema, at.path):
        errors += _rule_text(rule, schema, field)
    children = list(_children(schema, at))
    yield from errors
    yield from children
    for rule, field in () if errors or children else _rules(schema, at.path):
        yield from _expression(rule, "messageExpression", schema, at, field)
        yield from _expression(rule, "rule", schema, at, field)
        yield from _old_self(rule, at, field)


def _plain(schema: Schema, at: _Context) -> Iterator[Cause]:
    path, kind = at.path, schema.get("type") or ""
    if kind and kind not in TYPES:
        yield causes.unsupported(f"{path}.type", kind, sorted(TYPES))
    if schema.get("default") is not None and at.no_default:
        yield causes.forbidden(f"{path}.default", f"must not be set {at.no_default}")
    for word in _UNSUPPORTED:
        if schema.get(word):
            yield causes.forbidden(f"{path}.{word}", f"{word} is not supported")
    if kind == "null":
        detail = "type cannot be set to null, use nullable as an alternative"
        yield causes.forbidden(f"{path}.type", detail)
    if isinstance(schema.get("items"), list):
        detail = "items must be a schema object and not an array"
        yield causes.forbidden(f"{path}.items", detail)
    if at.in_metadata and schema.get("x-kubernetes-embedded-resource"):
        detail = "must not be used inside of resource meta"
        yield causes.forbidden(f"{path}.x-kubernetes-embedded-resource", detail)
    yield from _combinations(schema, path)


def _combinations(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield causes.forbidden(f"{path}.uniqueItems", detail)
    extra = schema.get("additionalProperties")
    if extra is not None and extra is not True and schema.get("properties"):
        detail = "additionalProperties and properties are mutual exclusive"
        yield causes.forbidden(f"{path}.additionalProperties", detail)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        field = f"{path}.x-kubernetes-preserve-unknown-fields"
        yield causes.invalid(field, value=False, detail="must be true or undefined")
    yield from _needs_type(schema, path, "x-kubernetes-map-type", "object")
    map_type = schema.get("x-kubernetes-map-type")
    if map_type not in {None, "atomic", "granular"}:
        field = f"{path}.x-kubernetes-map-type"
        yield causes.unsupported(field, map_type, ("atomic", "granular"))


def _needs_type(schema: Schema, path: str, word: str, required_type: str) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    if schema.get(word) is not None and kind != required_type:
        detail = f"must be {required_type} if {word} is specified"
        field = f"{path}.type"
        yield causes.invalid(field, kind, detail) if kind else causes.required(field, detail)


def _list_type(schema: Schema, path: str) -> Iterator[Cause]:
    kind, keys = (
        schema.get("x-kubernetes-list-type"),
        schema.get("x-kubernetes-list-map-keys") or (),
    )
    field = f"{path}.x-kubernetes-list-type"
    yield from _needs_type(schema, path, "x-kubernetes-list-type", "array")
    if kind not in {None, "atomic", "set", "map"}:
        yield causes.unsupported(field, kind, ("atomic", "set", "map"))
    if keys and kind is None:
        yield causes.required(field, "must be map if x-kubernetes-list-map-keys is non-empty")
    elif keys and kind != "map":
        yield causes.invalid(field, kind, "must be map if x-kubernetes-list-map-keys is non-empty")
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _set_items(items, path) if kind == "set" else ()
        if kind in {"set", "map"} and items.get("nullable"):
            detail = f"cannot be nullable when x-kubernetes-list-type is {kind}"
            yield causes.forbidden(f"{path}.items.nullable", detail)
    if kind == "map":
        yield from _map_keys(schema, path)


def _set_items(items: Schema, path: str) -> Iterator[Cause]:
    detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
    inner = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and inner not in {None, "atomic"}:
        yield causes.invalid(f"{path}.items.x-kubernetes-list-type", inner, detail)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield causes.invalid(f"{path}.items.x-kubernetes-map-type", inner, detail)


def _map_keys(schema: Schema, path: str) -> Iterator[Cause]:
    keys, items = schema.get("x-kubernetes-list-map-keys") or (), schema.get("items")
    field = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield causes.required(field, "must not be empty if x-kubernetes-list-type is map")
    if not isinstance(items, Mapping):
        detail = "must have a schema if x-kubernetes-list-type is map"
        yield causes.required(f"{path}.items", detail)
        return
    if items.get("type") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        yield causes.invalid(f"{path}.items.type", items.get("type") or "", detail)
        return
    for index, key in enumerate(keys):
        if key in keys[:index]:
            yield causes.invalid(field, list(keys), "must not contain duplicate entries")
        if key in (items.get("properties") or {}):
            yield from _map_key(items, key, path)
        else:
            yield causes.invalid(field, list(keys), "entries must all be names of item properties")


def _map_key(items: Schema, key: str, path: str) -> Iterator[Cause]:
    schema = items["properties"][key]
    field = f"{path}.items.properties[{key}]"
    because = "this property is in x-kubernetes-list-map-keys, so it"
    if schema.get("type") in {"array", "object"}:
        detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
        yield causes.invalid(f"{field}.type", items.get("type"), detail)
    if key not in (items.get("required") or ()) and schema.get("default") is None:
        detail = f"{because} must have a default or be a required property"
        yield causes.required(f"{field}.default", detail)
    if schema.get("nullable"):
        yield causes.forbidden(f"{field}.nullable", f"{because} cannot be nullable")


def _children(schema: Schema, at: _Context) -> Iterator[Cause]:
    extra, items = schema.get("additionalProperties"), schema.get("items")
    if isinstance(extra, Mapping):
        context = at.child("additionalProperties")
        reason = "inside additionalProperties applying to object metadata"
        yield from _node(extra, replace(context, no_default=reason) if at.in_metadata else context)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _node(inner, _field_context(schema, name, inner, at))
    for step, inner in _junctors(schema):
        yield from _node(inner, at.child(step))
    if isinstance(items, Mapping):
        context = at.child("items")
        if schema.get("x-kubernetes-list-type") != "map":
            context = replace(context, uncorrelated=at.uncorrelated or at.path)
        yield from _node(items, replace(context, resource=_embedded(items)))


def _field_context(schema: Schema, name: str, inner: Schema, at: _Context) -> _Context:
    context = replace(at.child(f"properties[{name}]"), resource=_embedded(inner))
    if name not in META_FIELDS or not (at.root or _embedded(schema)):
        return context
    reason = f"in top-level {name}" if at.root else at.no_default
    return replace(context, in_metadata=True, no_default=reason)


def _embedded(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def _junctors(schema: Schema) -> Iterator[tuple[str, Schema]]:
    if isinstance(schema.get("not"), Mapping):
        yield "not", schema["not"]
    for word in ("allOf", "oneOf", "anyOf"):
        for index, inner in enumerate(schema.get(word) or ()):
            yield f"{word}[{index}]", inner


def _rules(schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
    """Yield the rules of a schema with their fields."""
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        yield rule, f"{path}.x-kubernetes-validations[{index}]"


def _rule_text(rule: Schema, schema: Schema, field: str) -> Iterator[Cause]:
    text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not text:
        yield causes.required(f"{field}.rule", "rule is not specified")
    elif message and not message.strip():
        yield causes.invalid(f"{field}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield causes.invalid(f"{field}.message", message, "must not contain line breaks")
    elif "\n" in text and not message:
        detail = "message must be specified if rule contains line breaks"
        yield causes.required(f"{field}.message", detail)
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        yield causes.unsupported(f"{field}.reason", reason, _REASONS)
    yield from _rule_path(rule.get("fieldPath") or "", schema, f"{field}.fieldPath")


def _rule_path(path: str, schema: Schema, field: str) -> Iterator[Cause]:
    if not path:
        return
    if not path.strip():
        yield causes.invalid(field, path, "must be non-empty if specified")
    if "\n" in path:
        yield causes.invalid(field, path, "must not contain line breaks")
    try:
        find(path, schema)
    except BadPath:
        yield causes.invalid(field, path, "must be a valid path")


def _expression(
    rule: Schema, word: str, schema: Schema, at: _Context, field: str
) -> Iterator[Cause]:
    source = rule.get(word) or ""
    if not source.strip():
        return
    try:
        Expression(source)
        if not rule.get("optionalOldSelf"):
            reject_unknown_fields(source, schema, root=at.resource)
    except BadExpression as error:
        prefix = "messageExpression " if word == "messageExpression" else ""
        yield causes.invalid(f"{field}.{word}", _as_go(rule), f"{prefix}{error}")


def _old_self(rule: Schema, at: _Context, field: str) -> Iterator[Cause]:
    try:
        uses_old = Expression(rule["rule"]).uses_old
    except BadExpression:
        return
    if uses_old and at.uncorrelated:
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {at.uncorrelated}"
        yield causes.invalid(f"{field}.rule", rule["rule"], detail)
    if not uses_old and rule.get("optionalOldSelf") is not None:
        detail = "may not be set if oldSelf is not used in rule"
        yield causes.invalid(f"{field}.optionalOldSelf", rule["optionalOldSelf"], detail)


def _as_go(rule: Schema) -> msgspec.Raw:
    # Kubernetes prints its internal struct of the rule here, in the order of its fields.
    internal = {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    return msgspec.Raw(msgspec.json.encode(internal))
