from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bramley.agent.processes import Head, Lines, Tail

blocks = st.lists(st.binary(max_size=20), max_size=8)


@given(blocks, st.integers(1, 30))
def test_a_head_is_the_beginning_and_a_tail_the_end_however_it_came(
    came: list[bytes], limit: int
) -> None:
    head, tail = Head(limit), Tail(limit)
    for block in came:
        head.feed(block)
        tail.feed(block)

    whole = b"".join(came)
    assert head.text() == whole[:limit].decode(errors="replace")
    assert tail.text() == whole[-limit:].decode(errors="replace")


@given(st.lists(st.sampled_from([b"a", b"\n", b"bc", b"\r\n", b""]), max_size=20))
def test_lines_are_told_however_they_came(came: list[bytes]) -> None:
    told: list[str] = []
    lines = Lines(told.append)
    for block in came:
        lines.feed(block)
    lines.close()

    whole = b"".join(came)
    expected = [line.rstrip(b"\r").decode() for line in whole.split(b"\n")]
    assert told == (expected[:-1] if whole.endswith(b"\n") or not whole else expected)


def test_a_line_that_never_ends_is_told_in_pieces() -> None:
    told: list[str] = []
    lines = Lines(told.append, limit=10)

    for _ in range(5):
        lines.feed(b"xxxx")

    assert told == ["x" * 12]
