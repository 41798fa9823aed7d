"""Value validation: one closure per schema node and type of the value.

Unchanged values are not reported (ratcheting): a schema that became stricter must not block writes that keep the old value.
Checks of single values are in `scalars`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.schema import scalars
from bramley.apiserver.schema.values import ABSENT, NO_FIELD, Schema, Visit, child, correlated, same
from bramley.base.errors import Cause


def compile_validation(schema: Schema) -> Visit:
    """Return a function that validates a value and its children."""
    by_type = {kind: _parts(schema, kind) for kind in scalars.TYPE_NAMES}

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        for run in by_type[type(value)]:
            run(value, old, path, out)

    return check


def ratcheted(check: Visit, value: Any, old: Any, path: str, out: list[Cause]) -> None:
    """Run a check, and drop its violations if the value is unchanged."""
    kind = type(value)
    if kind is type(old) and kind is not dict and kind is not list and value == old:
        return
    before = len(out)
    check(value, old, path, out)
    if len(out) > before and old is not ABSENT and same(value, old):
        del out[before:]


def _parts(schema: Schema, kind: type) -> Sequence[Visit]:
    parts: list[Visit | None] = [scalars.type_check(schema, kind)]
    if kind is not type(None):
        parts += [_any_of(schema), _one_of(schema), _all_of(schema), _not(schema)]
    if kind is str:
        parts += scalars.text_checks(schema)
    elif kind in {int, float}:
        parts += scalars.number_checks(schema)
    elif kind is list:
        parts += [_items(schema), scalars.count_check(schema, "Items")]
    elif kind is dict:
        parts += [_fields(schema), scalars.count_check(schema, "Properties")]
    parts.append(scalars.enumeration(schema))
    return [each for each in parts if each is not None]


def _fields(schema: Schema) -> Visit | None:
    checks = {
        name: compile_validation(inner) for name, inner in (schema.get("properties") or {}).items()
    }
    extra = schema.get("additionalProperties")
    others = compile_validation(extra) if isinstance(extra, Mapping) else None
    required = tuple(schema.get("required") or ())
    refuse_others = extra is False
    if not (checks or others or required or refuse_others):
        return None

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        former = old if type(old) is dict else {}
        for name, item in value.items():
            field_check = checks.get(name, others)
            if field_check is not None:
                ratcheted(field_check, item, former.get(name, ABSENT), child(path, name), out)
            elif refuse_others:
                detail = f"{path}.{name} in body is a forbidden property"
                out.append(causes.invalid(path or NO_FIELD, name, detail))
        out += (causes.required(child(path, name)) for name in required if name not in value)

    return check


def _items(schema: Schema) -> Visit | None:
    inner = schema.get("items")
    if not isinstance(inner, Mapping):
        return None
    inner_check = compile_validation(inner)
    counterparts = correlated(schema)

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        for index, (item, former) in enumerate(counterparts(value, old)):
            ratcheted(inner_check, item, former, f"{path}[{index}]", out)

    return check


def _compiled(schema: Schema, word: str) -> list[tuple[Schema, Visit]]:
    return [(branch, compile_validation(branch)) for branch in schema.get(word) or ()]


def _any_of(schema: Schema) -> Visit | None:
    branches = _compiled(schema, "anyOf")
    if not branches or schema.get("x-kubernetes-int-or-string"):
        return None

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        failures = _failures(branches, value, old, path)
        if all(failures):
            out.append(
                _combined(f"{causes.quoted(path)} must validate at least one schema (anyOf)")
            )
            out += _closest(branches, failures, value)

    return check


def _one_of(schema: Schema) -> Visit | None:
    branches = _compiled(schema, "oneOf")
    if not branches:
        return None

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        failures = _failures(branches, value, old, path)
        valid = sum(not errors for errors in failures)
        if valid == 1:
            return
        detail = f"Found {valid} valid alternatives" if valid else "Found none valid"
        rule = "must validate one and only one schema (oneOf)"
        out.append(_combined(f"{causes.quoted(path)} {rule}. {detail}"))
        if not valid:
            out += _closest(branches, failures, value)

    return check


def _all_of(schema: Schema) -> Visit | None:
    branches = _compiled(schema, "allOf")
    if not branches:
        return None

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        failures = _failures(branches, value, old, path)
        if any(failures):
            for errors in failures:
                out += errors
            detail = ". None validated" if all(failures) else ""
            rule = "must validate all the schemas (allOf)"
            out.append(_combined(f"{causes.quoted(path)} {rule}{detail}"))

    return check


def _not(schema: Schema) -> Visit | None:
    inner = schema.get("not")
    if not isinstance(inner, Mapping):
        return None
    inner_check = compile_validation(inner)

    def check(value: Any, old: Any, path: str, out: list[Cause]) -> None:
        errors: list[Cause] = []
        inner_check(value, old, path, errors)
        if not errors:
            out.append(_combined(f"{causes.quoted(path)} must not validate the schema (not)"))

    return check


def _failures(
    branches: Sequence[tuple[Schema, Visit]], value: Any, old: Any, path: str
) -> list[list[Cause]]:
    failures: list[list[Cause]] = []
    for _, check in branches:
        errors: list[Cause] = []
        check(value, old, path, errors)
        failures.append(errors)
    return failures


def _closest(
    branches: Sequence[tuple[Schema, Visit]], failures: Sequence[list[Cause]], value: Any
) -> list[Cause]:
    """Return the violations of the branch that applied the most checks, the first of equals."""
    applied = [_applied_checks(schema, value) for schema, _ in branches]
    return failures[applied.index(max(applied))]


def _applied_checks(schema: Schema, value: Any) -> int:
    # The number of checks that applied: Kubernetes reports the errors of the branch with the most.
    count = 2 if schema.get("type") else 0
    if type(value) is dict:
        fields = schema.get("properties") or {}
        return count + sum(
            4 + _applied_checks(fields[name], value[name]) for name in fields if name in value
        )
    return count


def _combined(detail: str) -> Cause:
    return causes.invalid(NO_FIELD, "", detail)
