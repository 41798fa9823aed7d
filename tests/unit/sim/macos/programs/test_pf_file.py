"""Files of pf rules: the rulesets that they define, and the errors that pf reports."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bramley.host.steps import firewall
from bramley.sim.macos.programs.pf_file import ORDER, Load, Ruleset
from tests.unit import example_counts

LINES = msgspec.yaml.decode((Path(__file__).parent / "pf_lines.yaml").read_bytes())
FILE = "/etc/pf.conf"
ANCHOR = "/etc/pf.anchors/tuist.runners"


def load(text: str, **files: str) -> Load:
    read = Load({FILE: text, **{f"/{name}": content for name, content in files.items()}}.get)
    read.file(FILE)
    return read


def errors_of(text: str, **files: str) -> list[str]:
    return load(text, **files).errors


def main(text: str, **files: str) -> Ruleset:
    read = load(text, **files)
    assert read.errors == []
    return read.ruleset("")


@pytest.mark.parametrize(("line", "shown"), LINES["shown"], ids=lambda one: str(one)[:50])
def test_line_is_shown_as_pfctl_does(line: str, shown: list[str]) -> None:
    found = main(f"{line}\n")

    assert [*found.rules, *found.nat, *found.dummynet] == shown


@pytest.mark.parametrize(("line", "message"), LINES["refused"], ids=lambda one: str(one)[:50])
def test_line_is_refused_with_its_number(line: str, message: str) -> None:
    errors = errors_of(f"\n# before\n{line}\n")

    assert errors[0].startswith(f"{FILE}:")
    assert message in errors[0]
    assert errors[-1] == "pfctl: Syntax error in config file: pf rules not loaded"


def test_every_invalid_line_is_reported() -> None:
    errors = errors_of("passs\npass\nblock to 10.0.0.0/99\n")

    assert [each.split(":")[1] for each in errors[:2]] == ["1", "3"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("pass", "set skip on lo0"),
        ("pass", "scrub in"),
        ("pass", 'scrub-anchor "x"'),
        ("pass", "nat on en0 from any to any -> (en0)"),
        ('anchor "x"', 'rdr-anchor "x"'),
        ('anchor "x"', 'dummynet-anchor "x"'),
        ('nat-anchor "x"', "scrub in"),
    ],
)
def test_sections_must_be_in_order(first: str, second: str) -> None:
    assert errors_of(f"{second}\n{first}\n") == []
    assert errors_of(f"{first}\n{second}\n")[0] == f"{FILE}:2: {ORDER}"


def test_order_check_may_be_disabled() -> None:
    assert errors_of("set require-order no\npass\nscrub in\n") == []


def test_macros_and_tables_may_be_anywhere() -> None:
    found = main('pass\nnet = "10.0.0.0/8"\ntable <t> { $net }\npass from $net to <t>\n')

    assert found.tables == {"t": ["10.0.0.0/8"]}
    assert found.rules[1] == "pass inet from 10.0.0.0/8 to <t> flags S/SA keep state"


def test_macro_may_be_a_list_and_contain_macros() -> None:
    found = main('a = "10.0.0.1"\nb = "{" $a ", 10.0.0.2 }"\nblock from $b\n')

    assert [rule.split()[4] for rule in found.rules] == ["10.0.0.1", "10.0.0.2"]


def test_recursive_macro_is_an_error() -> None:
    assert "macro 'a' not defined" in errors_of('a = "$a"\npass from $a\n')[0]


def test_lists_and_lines_may_be_continued() -> None:
    found = main("table <t> {\n 10.0.0.0/8\n # and\n 172.16.0.0/12,\n}\npass \\\n  in\n")

    assert found.tables["t"] == ["10.0.0.0/8", "172.16.0.0/12"]
    assert found.rules == ["pass in all flags S/SA keep state"]


def test_table_may_come_from_a_file_or_be_empty() -> None:
    found = main(
        'table <t> persist file "/list"\ntable <e> {}\n', list="10.0.0.1 # one\n10.0.0.2\n"
    )

    assert found.tables == {"t": ["10.0.0.1", "10.0.0.2"], "e": []}


def test_policy_of_blocks_may_be_set() -> None:
    assert main("set block-policy return\nblock\nblock drop\n").rules == [
        "block return all",
        "block drop all",
    ]


def test_rules_within_braces_belong_to_the_anchor() -> None:
    read = load('anchor "a" on en0 {\n pass in\n anchor "b" {\n  block\n }\n}\npass out\n')

    assert read.errors == []
    assert read.ruleset("").rules == ['anchor "a" on en0 all', "pass out all flags S/SA keep state"]
    assert read.ruleset("a").rules == ["pass in all flags S/SA keep state", 'anchor "b" all']
    assert read.ruleset("a/b").rules == ["block drop all"]


def test_table_that_is_defined_twice_in_one_anchor_is_busy() -> None:
    errors = errors_of("table <t> { 10.0.0.1 }\ntable <t> { 10.0.0.2 }\n")

    assert errors[0] == f"{FILE}:2: cannot define table t: Resource busy"


def test_anchor_without_tables_may_be_loaded_twice() -> None:
    twice = 'load anchor "a" from "/rules"\n' * 2

    assert errors_of(twice, rules="pass\n") == []
    assert "Resource busy" in errors_of(twice, rules="table <t> {}\n")[0]


def test_two_anchors_may_have_tables_of_one_name() -> None:
    text = 'load anchor "a" from "/rules"\nload anchor "b" from "/rules"\n'

    assert errors_of(text, rules="table <t> { 10.0.0.1 }\n") == []


def test_anchor_loads_nested_anchors() -> None:
    read = load(
        'load anchor "a" from "/outer"\n', outer='load anchor "b" from "/inner"\n', inner="pass\n"
    )

    assert set(read.rulesets) == {"", "a", "a/b"}


def test_file_that_loads_itself_is_an_error() -> None:
    errors = errors_of('load anchor "a" from "/rules"\n', rules='load anchor "a" from "/rules"\n')

    assert errors[0] == "pfctl: load anchors: File name too long"


STOCK = """\
scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
"""
LEGACY = (
    "# Tuist runner VM egress filter (#1)\n"
    'anchor "tuist.runners"\n'
    'load anchor "tuist.runners" from "/etc/pf.anchors/tuist.runners"\n'
)


@settings(max_examples=example_counts.examples(60), deadline=None)
@given(
    st.lists(st.sampled_from([LEGACY, firewall.PF_BLOCK.decode(), "pass out on en0\n"]), max_size=5)
)
def test_pf_accepts_the_file_after_any_history(history: list[str]) -> None:
    files = {"/etc/pf.anchors/com.apple": 'anchor "x/*"\n', ANCHOR: "table <vms> { 10.0.0.1 }\n"}
    before = STOCK + "".join(history)
    was_loaded = sum(piece != "pass out on en0\n" for piece in history)

    assert Load({**files, FILE: before}.get).file(FILE) == (was_loaded < 2)
    after = firewall.with_block(before.encode()).decode()
    read = Load({**files, FILE: after}.get)
    assert read.file(FILE)
    assert read.ruleset("").rules.count('anchor "tuist.runners" all') == 1
    assert read.ruleset("").nat[0] == 'nat-anchor "com.apple/*" all'
