"""Rules in CEL beyond what the recorded answers show: functions, typed values and messages of failures."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bramley.apiserver.schema import structural
from bramley.apiserver.schema.cel import BadExpression, Expression, escaped

Json = dict[str, Any]


def verdict(rule: Json, value: Any, *, schema: Json | None = None, old: Any = None) -> list[str]:
    field = {"x-kubernetes-preserve-unknown-fields": True, **(schema or {})}
    compiled = structural.compile(
        {"type": "object", "properties": {"spec": {**field, "x-kubernetes-validations": [rule]}}}
    )
    before = None if old is None else {"spec": old}
    return [cause.message for cause in compiled.validate({"spec": value}, before)]


@pytest.mark.parametrize(
    "rule",
    [
        "self.s.charAt(1) == 'b'",
        "self.s.indexOf('c') == 2 && self.s.lastIndexOf('a') == 0",
        "self.s.substring(1) == 'bc' && self.s.substring(0, 1) == 'a'",
        "self.s.replace('a', 'x') == 'xbc'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "['a', 'b'].join('-') == 'a-b'",
        "self.s.upperAscii() == 'ABC' && 'ÄB'.lowerAscii() == 'Äb'",
        "' x '.trim() == 'x'",
        "self.l.isSorted() && self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3",
        "self.l.indexOf(2) == 1 && self.l.lastIndexOf(9) == -1",
        "self.s.find('[b-z]+') == 'bc' && 'a1b2'.findAll('[0-9]') == ['1', '2']",
        "sets.contains(self.l, [1, 2]) && sets.equivalent(self.l, [3, 2, 1, 1])",
        "!sets.intersects(self.l, [7])",
        "self.l.exists(x, x == 2) && self.l.exists_one(x, x == 2) && self.l.map(x, x * 2).size() == 3",
        "self.l.filter(x, x > 1).all(y, y < 4)",
        "size(self.s) == 3 && self.s.matches('^a.c$') && self.s.startsWith('a')",
        "type(self.s) == string && int('3') == 3 && dyn(1) == 1",
        "'k' in self.m && self.m['k'] == 1",
        "duration('90s') > duration('1m') && timestamp('2026-01-01T00:00:00Z').getFullYear() == 2026",
    ],
)
def test_kubernetes_functions_work(rule: str) -> None:
    value = {"s": "abc", "l": [1, 2, 3], "m": {"k": 1}}

    assert verdict({"rule": rule}, value) == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"rule": "self.q == 1"}, 'Invalid value: "": no such key: q evaluating rule: self.q == 1'),
        ({"rule": "1 / self.z == 1", "message": "m"}, 'Invalid value: "": division by zero evaluating rule: m'),
        ({"rule": "self.l[9] == 1"}, 'Invalid value: "": index out of bounds: 9 evaluating rule: self.l[9] == 1'),
        (
            {"rule": "self.s + 1 == 2"},
            "Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, function or macro signature for rule: self.s + 1 == 2",
        ),
        ({"rule": "self.z == 1"}, 'Invalid value: "": failed rule: self.z == 1'),
        ({"rule": "self.z == 1", "messageExpression": "self.s + '!'"}, 'Invalid value: "": abc!'),
        ({"rule": "self.z == 1", "message": "m", "messageExpression": "self.q"}, 'Invalid value: "": m'),
        ({"rule": "self.z == 1", "message": "m", "messageExpression": "'a\\nb'"}, 'Invalid value: "": m'),
        ({"rule": "self.z == 1", "message": "m", "messageExpression": "'  '"}, 'Invalid value: "": m'),
    ],
)  # fmt: skip
def test_failing_rule_has_a_message(rule: Json, message: str) -> None:
    assert verdict(rule, {"s": "abc", "l": [1], "z": 0}) == [message]


@pytest.mark.parametrize(
    ("schema", "value", "rule"),
    [
        ({"type": "number"}, 2, "self / 4.0 == 0.5"),
        ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05Z", "self.getHours() == 3"),
        ({"type": "string", "format": "duration"}, "1h30m", "self == duration('90m')"),
        ({"type": "string", "format": "byte"}, "YWJj", "size(self) == 3"),
        ({"type": "array", "items": {"type": "number"}}, [1, 2], "self.all(x, x * 0.5 < 2.0)"),
        (
            {"type": "object", "additionalProperties": {"type": "number"}},
            {"a": 1},
            "self.all(k, self[k] * 1.5 == 1.5)",
        ),
        (
            {"type": "object", "properties": {"a-b": {"type": "string"}, "in": {"type": "string"}}},
            {"a-b": "x", "in": "y"},
            "self.a__dash__b == 'x' && self.__in__ == 'y'",
        ),
    ],
)
def test_values_have_the_types_of_the_schema(schema: Json, value: Any, rule: str) -> None:
    schema = {**schema, "x-kubernetes-preserve-unknown-fields": None}

    assert verdict({"rule": rule}, value, schema=schema) == []


def test_transition_rule_needs_an_old_value() -> None:
    rule = {"rule": "self == oldSelf", "message": "fixed"}

    assert verdict(rule, 1) == []
    assert verdict(rule, 1, old=1) == []
    assert verdict(rule, 2, old=1) == ['Invalid value: "": fixed']


def test_null_is_not_shown_to_rules() -> None:
    assert verdict({"rule": "self > 1"}, None, schema={"nullable": True}) == []


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("a", "a"),
        ("a-b", "a__dash__b"),
        ("a.b", "a__dot__b"),
        ("a/b", "a__slash__b"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("1a", None),
        ("a b", None),
    ],
)
def test_names_are_escaped_as_kubernetes_does(name: str, spelled: str | None) -> None:
    assert spelled == escaped(name)


@pytest.mark.parametrize(
    "source",
    ["self.?x.orValue(1) == 1", "isURL(self)", "ip(self) == ip('::1')", "x == 1", "self ==", ""],
)
def test_rule_that_cannot_be_evaluated_is_refused(source: str) -> None:
    with pytest.raises(BadExpression, match="compilation failed"):
        Expression(source)


def test_schema_without_rules_does_not_load_the_evaluator() -> None:
    code = (
        "import sys\n"
        "from bramley.apiserver.schema import structural\n"
        "structural.compile({'type': 'object'}).validate({}, None)\n"
        "sys.exit('cel' in sys.modules or any('typer' in name for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("operator", ["+1", ".a", "&&true", "[0]"])
def test_rule_that_is_too_long_is_refused_before_it_is_parsed(operator: str) -> None:
    with pytest.raises(BadExpression, match="exceeds limit"):
        Expression("self" + operator * 50_000)


def test_longest_rule_is_still_evaluated() -> None:
    source = "1" + "+1" * 2_400 + " == self"

    assert Expression(source).evaluate({"self": 2_401}) is True


def test_rule_of_another_release_that_cannot_be_compiled_refuses_changes_only() -> None:
    rule = {"rule": "nobodyKnows(self)"}

    assert "rule compile error" in verdict(rule, 2, old=1)[0]
    assert verdict(rule, 1, old=1) == []
