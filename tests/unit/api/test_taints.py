from __future__ import annotations

import pytest

from bramley.api import taints
from bramley.api.core import Taint
from bramley.apiserver.kinds import nodes

VALID = [
    ("dedicated=builders:NoSchedule", Taint(key="dedicated", value="builders", effect="NoSchedule")),
    ("dedicated:NoExecute", Taint(key="dedicated", effect="NoExecute")),
    ("a=:PreferNoSchedule", Taint(key="a", effect="PreferNoSchedule")),
    ("example.com/A_b.c-1=x:NoSchedule", Taint(key="example.com/A_b.c-1", value="x", effect="NoSchedule")),
    (f"{'a' * 253}/b:NoSchedule", Taint(key=f"{'a' * 253}/b", effect="NoSchedule")),
    (f"{'a' * 63}={'b' * 63}:NoSchedule", Taint(key="a" * 63, value="b" * 63, effect="NoSchedule")),
]  # fmt: skip
INVALID = [
    ("", "not KEY"),
    (":NoSchedule", "not KEY"),
    ("dedicated", "not KEY"),
    ("dedicated=builders", "not KEY"),
    ("dedicated:", "unknown effect ''"),
    ("dedicated:noschedule", "unknown effect 'noschedule'"),
    ("dedicated:NoSchedule-", "unknown effect"),
    ("=x:NoSchedule", "invalid key ''"),
    ("-a:NoSchedule", "invalid key"),
    ("a b:NoSchedule", "invalid key"),
    ("a\n:NoSchedule", "invalid key"),
    ("/a:NoSchedule", "invalid key"),
    ("Example.com/a:NoSchedule", "invalid key"),
    ("a/b/c:NoSchedule", "invalid key"),
    (f"{'a' * 64}:NoSchedule", "invalid key"),
    (f"{'a' * 254}/b:NoSchedule", "invalid key"),
    ("a:b:NoSchedule", "invalid key 'a:b'"),
    ("a=b=c:NoSchedule", "invalid value 'b=c'"),
    (f"a={'b' * 64}:NoSchedule", "invalid value"),
    ("a=ä:NoSchedule", "invalid value"),
    ("a" * 600 + ":NoSchedule", "longer than 512"),
]


@pytest.mark.parametrize(("text", "expected"), VALID)
def test_taint_is_read_in_the_notation_of_kubectl(text: str, expected: Taint) -> None:
    assert taints.parse([text]) == (expected,)


@pytest.mark.parametrize(("text", "message"), INVALID)
def test_invalid_taint_is_refused_by_its_bad_part(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        taints.parse(["fine:NoSchedule", text])


@pytest.mark.parametrize(("_", "taint"), VALID)
def test_api_accepts_what_is_read(_: str, taint: Taint) -> None:
    wire = {"key": taint.key, "value": taint.value, "effect": taint.effect}

    assert nodes._validate_taint(wire, "spec.taints[0]") == []


def test_key_may_occur_once_for_each_effect() -> None:
    assert len(taints.parse(["a=1:NoSchedule", "a=2:NoExecute"])) == 2
    with pytest.raises(ValueError, match="'a=2:NoSchedule' has the key and the effect of another"):
        taints.parse(["a=1:NoSchedule", "a=2:NoSchedule"])
