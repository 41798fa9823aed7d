"""Rules in CEL (`x-kubernetes-validations`): compiled with the schema, run on every write.

A transition rule, one that reads `oldSelf`, runs only if there is an old value, unless it has `optionalOldSelf`; other rules
run only if the value has changed. Values are converted for CEL by their schema: numbers of type number to doubles, strings
of the formats date-time, date, duration and byte to times, durations and bytes, and field names to their escaped form.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.schema import cel
from bramley.apiserver.schema.cel import BadExpression, EvaluationFailed, Expression, escaped
from bramley.apiserver.schema.field_paths import normalized
from bramley.apiserver.schema.values import (
    ABSENT,
    NO_FIELD,
    Schema,
    Visit,
    child,
    compile_tree,
    same,
)
from bramley.base.errors import Cause

Convert = Callable[[Any], Any]

_PART = re.compile(r"([0-9]*\.?[0-9]*)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


def compile_conversion(schema: Any) -> Convert | None:
    """Return a function that converts a JSON value for CEL, or None if nothing has to be converted."""
    if not isinstance(schema, Mapping):
        return None
    if schema.get("type") == "string":
        return _BY_FORMAT.get((schema.get("format") or "").replace("-", ""))
    if schema.get("type") == "number":
        return _double
    return _list(schema) or _object(schema)


def _list(schema: Schema) -> Convert | None:
    convert_item = compile_conversion(schema.get("items"))
    if convert_item is None:
        return None
    return lambda value: [convert_item(item) for item in value] if type(value) is list else value


def _object(schema: Schema) -> Convert | None:
    properties = schema.get("properties") or {}
    below = {name: run for name in properties if (run := compile_conversion(properties[name]))}
    escaped_names = {name: escaped(name) or name for name in properties}
    extra = compile_conversion(schema.get("additionalProperties"))
    renamed = any(name != new for name, new in escaped_names.items())
    if not (below or renamed or extra):
        return None

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            return value
        out: dict[str, Any] = {}
        for name, item in value.items():
            run = below.get(name) if name in properties else extra
            label = str(escaped_names.get(name, name))
            out[label] = item if run is None or item is None else run(item)
        return out

    return convert


def _double(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _time(value: Any) -> Any:
    try:
        when = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _duration(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    seconds = sum(float(amount or 0) * _SECONDS[unit] for amount, unit in _PART.findall(value))
    return timedelta(seconds=-seconds if value.startswith("-") else seconds)


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value)
    except (TypeError, ValueError):
        return value


_BY_FORMAT: Mapping[str, Convert] = {
    "datetime": _time,
    "date": _time,
    "duration": _duration,
    "byte": _bytes,
}


_MAX_MESSAGE_LENGTH = 5 * 1024


def compile_rules(schema: Schema) -> Visit | None:
    """Return a function that runs the rules of the schema, or None if it has none."""
    return compile_tree(schema, _compile_node)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule, ready to run."""

    expression: Expression
    message_expression: Expression | None
    message: str
    reason: str
    field_path: str
    optional_old: bool

    @property
    def detail(self) -> str:
        """Return the message of the rule if it has no message expression."""
        return self.message or f"failed rule: {self.expression.source.strip()}"


def _compile_node(schema: Schema) -> Visit | None:
    declared = schema.get("x-kubernetes-validations") or ()
    if not declared:
        return None
    try:
        rules = [_compiled(rule, schema) for rule in declared]
    except BadExpression as error:
        return _reject_changes(schema, str(error))
    convert = compile_conversion(schema)
    kind = schema.get("type") or ""
    transition_rules = [rule for rule in rules if rule.expression.uses_old]

    def visit(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        if value is None:
            return
        # Violations by an unchanged value are ignored, so only rules that read `oldSelf` have to run.
        applicable = transition_rules if old is not ABSENT and same(value, old) else rules
        if applicable:
            variables = _variables(value, old, convert)
            errors = (_violation(rule, variables, path, kind) for rule in applicable)
            out += (cause for cause in errors if cause is not None)

    return visit


def _reject_changes(schema: Schema, why: str) -> Visit:
    """Reject changes of a value whose rule does not compile; another release has accepted the rule."""
    detail = f"rule compile error: {why}"

    def visit(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        if value is not None and not (old is not ABSENT and same(value, old)):
            out.append(causes.invalid(path or NO_FIELD, schema.get("type") or "", detail))

    return visit


def _compiled(rule: Mapping[str, Any], schema: Schema) -> _Rule:
    message_expression = rule.get("messageExpression") or ""
    return _Rule(
        Expression(rule["rule"]),
        Expression(message_expression) if message_expression.strip() else None,
        (rule.get("message") or "").strip(),
        rule.get("reason") or "FieldValueInvalid",
        normalized(rule.get("fieldPath") or "", schema),
        bool(rule.get("optionalOldSelf")),
    )


def _variables(value: Any, old: Any, convert: Convert | None) -> dict[str, Any]:
    variables = {"self": value if convert is None else convert(value)}
    if old is not ABSENT and old is not None:
        variables["oldSelf"] = old if convert is None else convert(old)
    return variables


def _violation(rule: _Rule, variables: Mapping[str, Any], path: str, kind: str) -> Cause | None:
    if rule.optional_old:
        variables = _with_optional_old(variables)
    elif rule.expression.uses_old and "oldSelf" not in variables:
        return None
    field = path or NO_FIELD
    try:
        if rule.expression.evaluate(variables) is True:
            return None
    except EvaluationFailed as failure:
        return causes.invalid(field, kind, _failure_message(rule, str(failure)))
    path_of_cause = child(path, rule.field_path) if rule.field_path else field
    return _REASONS.get(rule.reason, causes.invalid)(path_of_cause, kind, _message(rule, variables))


def _with_optional_old(variables: Mapping[str, Any]) -> dict[str, Any]:
    optional = cel.load_cel().OptionalValue
    old = optional.none()
    if "oldSelf" in variables:
        old = optional.of(variables["oldSelf"])
    return {**variables, "oldSelf": old}


def _message(rule: _Rule, variables: Mapping[str, Any]) -> str:
    if rule.message_expression is None:
        return rule.detail
    try:
        computed = rule.message_expression.evaluate(variables)
    except EvaluationFailed:
        return rule.detail
    text = computed.strip() if isinstance(computed, str) else ""
    usable = text and "\n" not in text and len(text.encode()) <= _MAX_MESSAGE_LENGTH
    return text if usable else rule.detail


def _failure_message(rule: _Rule, failure: str) -> str:
    shown = rule.message or rule.expression.source.strip()
    if failure.startswith("no such overload"):
        return f"'{failure}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
    return f"{failure} evaluating rule: {shown}"


_REASONS: Mapping[str, Callable[[str, Any, str], Cause]] = {
    "FieldValueForbidden": lambda field, _, detail: causes.forbidden(field, detail),
    "FieldValueRequired": lambda field, _, detail: causes.required(field, detail),
    "FieldValueDuplicate": lambda field, kind, _: causes.duplicate(field, kind),
}
