"""pf.conf of every history: one block of ours afterwards, nothing of others changed, and the same bytes for ever."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bramley.host import pf_conf
from tests.unit import sampling

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
def test_a_history_ends_in_one_block_and_the_lines_of_others(history: dict[str, str]) -> None:
    before, foreign = filled(history["before"]), filled(history["foreign"])

    after = pf_conf.with_block(before)

    assert after == foreign + BEGIN + b"\n" + ANCHOR + LOAD + END + b"\n"
    assert pf_conf.with_block(after) == after
    assert pf_conf.without_block(after) == foreign


def test_a_last_line_without_its_end_gets_one() -> None:
    after = pf_conf.with_block(b"pass out on en0")

    assert after == b"pass out on en0\n" + pf_conf.BLOCK
    assert pf_conf.with_block(after) == after


def test_lines_that_end_as_on_windows_are_known_and_kept() -> None:
    text = b"pass out on en0\r\n" + BEGIN + b"\r\n" + LOAD[:-1] + b"\r\n" + END + b"\r\n"

    assert pf_conf.without_block(text) == b"pass out on en0\r\n"


def test_lines_in_no_encoding_stay_as_they_are() -> None:
    text = b"# \xff\xfe caf\xe9 \r inside\n\n\n"

    assert pf_conf.with_block(text) == text + pf_conf.BLOCK


class Piece(NamedTuple):
    """Some whole lines, and whose they are: `foreign`, `begin` and `end` for a loose marker, `ours` for all else of ours."""

    kind: str
    text: bytes


def around(marker: bytes) -> list[bytes]:
    return [marker + b"\n", b" \t" + marker + b" \n", marker + b"\r\n"]


INSIDES = [b"", ANCHOR + LOAD, b"# \xff\n\ntable <t> { 10.0.0.0/8 }\n" + LOAD]
STANZAS = [COMMENT + b" (managed)\n" + ANCHOR + LOAD, COMMENT + b"\n", ANCHOR, LOAD]
OURS = [
    *(Piece("ours", stanza) for stanza in STANZAS),
    *(
        Piece("block", b + inside + e)
        for b, e in zip(around(BEGIN), around(END), strict=True)
        for inside in INSIDES
    ),
    *(Piece("begin", begin + inside) for begin in around(BEGIN) for inside in [b"", ANCHOR]),
    *(Piece("end", inside + end) for end in around(END) for inside in [b"", ANCHOR + LOAD]),
]
OTHERS = [
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
FOREIGN = st.sampled_from(OTHERS) | ANYTHING.map(lambda line: line + b"\n")
PIECES = st.lists(
    st.sampled_from(OURS) | FOREIGN.map(lambda line: Piece("foreign", line)), max_size=8
)


def history_of(pieces: list[Piece], *, is_cut: bool) -> History:
    """Put pieces together; the last line of a file may lack its end, whosever it is."""
    text, foreign, is_open = b"", b"", False
    for kind, lines in pieces:
        # A begin and an end that belong to two broken blocks look like one whole block, but for Apple's lines.
        between = STOCK.encode() if kind == "end" and is_open else b""
        text += between + lines
        foreign += between + (lines if kind == "foreign" else b"")
        is_open = kind == "begin" or (is_open and kind not in {"block", "end"})
    if pieces and is_cut:
        text = text[:-1]
        foreign = foreign[:-1] if pieces[-1].kind == "foreign" else foreign
    return History(text, foreign)


@settings(max_examples=sampling.examples(500))
@given(st.builds(history_of, PIECES, is_cut=st.booleans()))
@example(History(BEGIN, b""))
@example(History(b"pass\n" + BEGIN + b"\n" + LOAD + b"block", b"pass\nblock"))
def test_any_mix_of_histories_ends_in_one_block(history: History) -> None:
    has_end = history.foreign.endswith(b"\n") or not history.foreign
    parted = history.foreign if has_end else history.foreign + b"\n"

    once = pf_conf.with_block(history.text)

    assert once.removesuffix(pf_conf.BLOCK) == parted
    assert once.endswith(pf_conf.BLOCK)
    assert [line.strip() for line in once.split(b"\n")].count(BEGIN) == 1
    assert once.count(LOAD) == 1
    assert pf_conf.with_block(once) == once


@given(st.binary(max_size=200))
def test_any_bytes_end_in_the_same_bytes_for_ever(text: bytes) -> None:
    once = pf_conf.with_block(text)

    assert pf_conf.with_block(once) == once
