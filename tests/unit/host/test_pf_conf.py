"""pf.conf of every history: one block of ours afterwards, foreign lines unchanged, and no change by a second run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bramley.host.steps import firewall
from tests.unit import example_counts

STOCK = """\
scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
"""
HISTORIES = yaml.safe_load((Path(__file__).parent / "pf_conf_histories.yaml").read_text())
ANCHOR = b'anchor "tuist.runners"\n'
LOAD = b'load anchor "tuist.runners" from "/etc/pf.anchors/tuist.runners"\n'
COMMENT = b"# Tuist runner VM egress filter"
BEGIN, END = b"# BEGIN tuist.runners", b"# END tuist.runners"


class History(NamedTuple):
    """A file, and its lines that are not ours."""

    text: bytes
    foreign: bytes


def filled(text: str) -> bytes:
    return text.replace("STOCK\n", STOCK).encode()


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: str(history["name"]))
def test_history_results_in_one_block_and_the_foreign_lines(history: dict[str, str]) -> None:
    before, foreign = filled(history["before"]), filled(history["foreign"])

    after = firewall.with_block(before)

    assert after == foreign + BEGIN + b"\n" + ANCHOR + LOAD + END + b"\n"
    assert firewall.with_block(after) == after
    assert firewall.without_block(after) == foreign


def test_last_line_without_a_newline_gets_one() -> None:
    after = firewall.with_block(b"pass out on en0")

    assert after == b"pass out on en0\n" + firewall.PF_BLOCK
    assert firewall.with_block(after) == after


def test_crlf_lines_are_recognized_and_kept() -> None:
    text = b"pass out on en0\r\n" + BEGIN + b"\r\n" + LOAD[:-1] + b"\r\n" + END + b"\r\n"

    assert firewall.without_block(text) == b"pass out on en0\r\n"


def test_invalid_utf8_is_kept() -> None:
    text = b"# \xff\xfe caf\xe9 \r inside\n\n\n"

    assert firewall.with_block(text) == text + firewall.PF_BLOCK


class Piece(NamedTuple):
    """Some whole lines and their kind: `foreign`, `begin` or `end` for a single marker, `block`, or `ours` for other lines of ours."""

    kind: str
    text: bytes


def marker_variants(marker: bytes) -> list[bytes]:
    return [marker + b"\n", b" \t" + marker + b" \n", marker + b"\r\n"]


BLOCK_CONTENTS = [b"", ANCHOR + LOAD, b"# \xff\n\ntable <t> { 10.0.0.0/8 }\n" + LOAD]
STANZAS = [COMMENT + b" (managed)\n" + ANCHOR + LOAD, COMMENT + b"\n", ANCHOR, LOAD]
OURS = [
    *(Piece("ours", stanza) for stanza in STANZAS),
    *(
        Piece("block", b + inside + e)
        for b, e in zip(marker_variants(BEGIN), marker_variants(END), strict=True)
        for inside in BLOCK_CONTENTS
    ),
    *(
        Piece("begin", begin + inside)
        for begin in marker_variants(BEGIN)
        for inside in [b"", ANCHOR]
    ),
    *(
        Piece("end", inside + end)
        for end in marker_variants(END)
        for inside in [b"", ANCHOR + LOAD]
    ),
]
FOREIGN_LINES = [
    *(line.encode() for line in STOCK.splitlines(keepends=True)),
    *(
        b"\n",
        b"# anchor\r\n",
        b"set skip on lo0\n",
        b"pass on en0 \\\n",
        b'anchor "tuist.runners2"\n',
    ),
]
ANYTHING = st.binary(max_size=12).filter(lambda line: b"\n" not in line and b"anchor" not in line)
FOREIGN = st.sampled_from(FOREIGN_LINES) | ANYTHING.map(lambda line: line + b"\n")
PIECES = st.lists(
    st.sampled_from(OURS) | FOREIGN.map(lambda line: Piece("foreign", line)), max_size=8
)


def history_of(pieces: list[Piece], *, is_truncated: bool) -> History:
    """Join pieces; the last line of a file may lack its newline."""
    text, foreign, is_open = b"", b"", False
    for kind, lines in pieces:
        # A begin and an end of two broken blocks could be one block, except for Apple's lines between them.
        between = STOCK.encode() if kind == "end" and is_open else b""
        text += between + lines
        foreign += between + (lines if kind == "foreign" else b"")
        is_open = kind == "begin" or (is_open and kind not in {"block", "end"})
    if pieces and is_truncated:
        text = text[:-1]
        foreign = foreign[:-1] if pieces[-1].kind == "foreign" else foreign
    return History(text, foreign)


@settings(max_examples=example_counts.examples(500))
@given(st.builds(history_of, PIECES, is_truncated=st.booleans()))
@example(History(BEGIN, b""))
@example(History(b"pass\n" + BEGIN + b"\n" + LOAD + b"block", b"pass\nblock"))
def test_any_mix_of_histories_results_in_one_block(history: History) -> None:
    has_end = history.foreign.endswith(b"\n") or not history.foreign
    separated = history.foreign if has_end else history.foreign + b"\n"

    once = firewall.with_block(history.text)

    assert once.removesuffix(firewall.PF_BLOCK) == separated
    assert once.endswith(firewall.PF_BLOCK)
    assert [line.strip() for line in once.split(b"\n")].count(BEGIN) == 1
    assert once.count(LOAD) == 1
    assert firewall.with_block(once) == once


@given(st.binary(max_size=200))
def test_a_second_run_changes_nothing(text: bytes) -> None:
    once = firewall.with_block(text)

    assert firewall.with_block(once) == once
