from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bramley.agent.processes import HeadBuffer, LineSplitter, TailBuffer

blocks = st.lists(st.binary(max_size=20), max_size=8)


@given(blocks, st.integers(1, 30))
def test_head_and_tail_do_not_depend_on_the_chunks(chunks: list[bytes], limit: int) -> None:
    head, tail = HeadBuffer(limit), TailBuffer(limit)
    for block in chunks:
        head.feed(block)
        tail.feed(block)

    whole = b"".join(chunks)
    assert head.text() == whole[:limit].decode(errors="replace")
    assert tail.text() == whole[-limit:].decode(errors="replace")


@given(st.lists(st.sampled_from([b"a", b"\n", b"bc", b"\r\n", b""]), max_size=20))
def test_lines_do_not_depend_on_the_chunks(chunks: list[bytes]) -> None:
    lines: list[str] = []
    splitter = LineSplitter(lines.append)
    for block in chunks:
        splitter.feed(block)
    splitter.close()

    whole = b"".join(chunks)
    expected = [line.rstrip(b"\r").decode() for line in whole.split(b"\n")]
    assert lines == (expected[:-1] if whole.endswith(b"\n") or not whole else expected)


def test_endless_line_is_split() -> None:
    lines: list[str] = []
    splitter = LineSplitter(lines.append, limit=10)

    for _ in range(5):
        splitter.feed(b"xxxx")

    assert lines == ["x" * 12]
