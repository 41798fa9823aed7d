"""Grammars: which values may be sent to a Mac, and errors that name every field."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.errors import Cause, InvalidSpec
from bramley.host import grammar

Check = Callable[[str, str], Iterable[Cause]]

CHECKS: dict[str, Check] = {
    "node_name": grammar.NODE_NAME.check,
    "user_name": grammar.USER_NAME.check,
    "label_key": grammar.LABEL_KEY.check,
    "label_value": grammar.LABEL_VALUE.check,
    "version": grammar.VERSION.check,
    "path": grammar.PATH.check,
    "provider_id": grammar.PROVIDER_ID.check,
    "host_name": grammar.host_name,
    "network": grammar.network,
}
GOOD = {
    "node_name": ["mac-1", "a", "mac-1.fleet.example", "m" * 63],
    "user_name": ["m1", "_www", "Jane-Doe_2"],
    "label_key": ["zone", "tuist.dev/fleet", "a.b/C_d.e-f", "x" * 63],
    "label_value": ["", "true", "A.b_c-1", "x" * 63],
    "version": ["2.32.1", "26", "26.3.1", "1.96.5", "3.11.9+20240814", "1.0.0-rc.1"],
    "path": ["/opt/tart-kubelet/1.0.0", "/Library/Application Support/x", "/a", "/a/..b/.c"],
    "provider_id": ["scw-applesilicon://fr-par-1/0a-b"],
    "host_name": ["10.0.0.1", "fe80::1", "mac-1", "Mac-1.Example.com", "1mac.example"],
    "network": ["10.0.0.0/8", "192.168.64.0/22", "10.1.2.3/32"],
}
BAD = {
    "node_name": ["", "Mac", "-a", "a-", "a..b", "a_b", "mac 1", "m" * 64, "a." * 127 + "a"],
    "user_name": ["", "-x", "1x", "jane.doe", "a b", "x" * 32, "root;id", "$(id)"],
    "label_key": ["", "/a", "a/", "-a", "a b", "x" * 64, "A/b", "a/b/c", "a..b/c", "a=b", "a,b"],
    "label_value": ["-a", "a-", "a b", "x" * 64, "a,b", "a=b"],
    "version": ["", "v1", "1.", "1..2", "1/2", "../1", "1.0-", "1 2", "1" * 65, "1.0-a..b"],
    "path": ["", "a", "a/b", "/", "/a/", "/a//b", "/a/../b", "/..", "/a/.", "/a'b", "/a$b", "~/a"],
    "provider_id": ["", "x", "://a/b", "x://", "x://a b"],
    "host_name": [
        "",
        "-oProxyCommand=x",
        "a b",
        "300.1.1.1",
        "1.2.3",
        "a..b",
        "fe80::1%en0",
        "a/b",
    ],
    "network": ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "fd00::/8", "text", "1.2.3/8"],
}
# Refused by every grammar at any position: these characters end a word or a line in some format.
FORBIDDEN = "\n\r\0\t'\"`$;&|<>(){}*?[]!#\\"


def cases(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, values in table.items() for value in values]


@pytest.mark.parametrize(("name", "value"), cases(GOOD))
def test_valid_values_are_accepted(name: str, value: str) -> None:
    assert list(CHECKS[name](name, value)) == []


@pytest.mark.parametrize(("name", "value"), cases(BAD))
def test_invalid_value_is_reported_with_its_field(name: str, value: str) -> None:
    [cause] = CHECKS[name]("spec.field", value)

    assert cause.field == "spec.field"
    assert cause.reason == "FieldValueInvalid"
    assert cause.message.startswith("spec.field ")
    assert " must be " in cause.message
    assert len(cause.message) < 300


@pytest.mark.parametrize("name", CHECKS)
def test_every_grammar_has_its_cases(name: str) -> None:
    assert GOOD[name]
    assert BAD[name]


@pytest.mark.parametrize("name", CHECKS)
@given(st.data())
def test_shell_metacharacters_are_refused_by_every_grammar(name: str, data: st.DataObject) -> None:
    good = data.draw(st.sampled_from(GOOD[name]))
    at = data.draw(st.integers(0, len(good)))
    value = good[:at] + data.draw(st.sampled_from(FORBIDDEN)) + good[at:]

    assert list(CHECKS[name](name, value))


@pytest.mark.parametrize("name", CHECKS)
@given(st.text(max_size=40))
def test_accepted_values_are_plain(name: str, text: str) -> None:
    if not list(CHECKS[name](name, text)):
        assert text.isascii()
        assert not text.startswith("-")
        assert not set(text) & set(FORBIDDEN)


def test_host_bits_in_a_network_are_reported_with_the_network() -> None:
    [cause] = grammar.network("egress", "10.1.2.3/8")

    assert cause.message.endswith("write 10.0.0.0/8")


def test_invalid_label_is_reported_with_its_key() -> None:
    found = list(grammar.labels("labels", {"zone": "a b", "a b": "x"}))

    assert [cause.field for cause in found] == ["labels[zone]", "labels"]


@pytest.mark.parametrize(("number", "is_good"), [(0, False), (1, True), (9, True), (10, False)])
def test_numbers_have_bounds(number: int, *, is_good: bool) -> None:
    assert (not list(grammar.count("cpu", number, maximum=9))) is is_good


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidSpec, match=r"mac-1: user '-x' must .*; node 'Y' must ") as caught:
        grammar.require(
            "mac-1",
            grammar.USER_NAME.check("user", "-x"),
            grammar.VERSION.check("version", "1.0"),
            grammar.NODE_NAME.check("node", "Y"),
        )

    assert [cause.field for cause in caught.value.causes] == ["user", "node"]


def test_valid_input_is_accepted() -> None:
    grammar.require("mac-1", grammar.USER_NAME.check("user", "m1"), ())
