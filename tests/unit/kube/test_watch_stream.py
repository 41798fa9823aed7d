from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base import errors
from bramley.kube.watch_stream import SAMPLE_BYTES, EventDecoder, Lines, Watch, WatchEvent
from tests.unit.kube.fake_transport import Widget, event, widget


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(whole), *(place % (len(whole) + 1) for place in places)})
    return [whole[a:b] for a, b in itertools.pairwise(borders)]


@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_lines_do_not_depend_on_the_chunks(lines: list[bytes], places: list[int]) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    framing = Lines()

    blocks = [framing.feed(chunk) for chunk in cut(whole, places)]

    assert b"".join(blocks) == whole
    assert all(block.endswith(b"\n") for block in blocks if block)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=8),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_long_lines_are_truncated_and_others_are_not(sizes: list[int], places: list[int]) -> None:
    lines = [bytes([97 + number]) * size for number, size in enumerate(sizes)]
    framing = Lines(max_line_bytes=10)

    fed = [framing.feed(chunk) for chunk in cut(b"\n".join(lines) + b"\n", places)]

    found = b"".join(fed).split(b"\n")[:-1]
    assert len(found) == len(lines)
    for line, whole in zip(found, lines, strict=True):
        # A long line that came in one piece costs nothing more, so it may pass.
        assert line == whole or (len(whole) > 10 and whole.startswith(line))


def test_endless_line_is_kept_only_in_part() -> None:
    framing = Lines(max_line_bytes=1000)

    for _ in range(10_000):
        assert framing.feed(b"x" * 100) == b""

    assert sum(len(part) for part in framing._parts) <= 1100
    assert framing.feed(b"x\nnext\n").splitlines()[1] == b"next"


async def chunked(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def watched(*chunks: bytes) -> list[list[WatchEvent[Widget]]]:
    ends = asyncio.get_running_loop().time() + 60
    watch = Watch(chunked(chunks), EventDecoder(Widget), ends=ends)
    return [batch async for batch in watch.batches()]


async def test_one_batch_for_each_piece_of_the_stream() -> None:
    added, changed = event("ADDED", widget("a")), event("MODIFIED", widget("a", version=2))

    batches = await watched(added + changed, b"", changed[:9], changed[9:] + b"\n\n")

    assert [[found.type for found in batch] for batch in batches] == [
        ["ADDED", "MODIFIED"],
        ["MODIFIED"],
    ]
    assert batches[0][1].object.spec.size == 1


async def test_a_watch_can_be_read_event_by_event() -> None:
    ends = asyncio.get_running_loop().time() + 60
    events = b"".join(event("ADDED", widget(name)) for name in "abc")
    watch = Watch(chunked([events]), EventDecoder(Widget), ends=ends)

    assert [found.object.name async for found in watch] == ["a", "b", "c"]


async def test_a_bookmark_needs_no_spec() -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "77"}})

    [[found]] = await watched(bookmark)

    assert found.type == "BOOKMARK"
    assert found.object.metadata.resource_version == "77"


async def test_an_error_is_raised_after_the_events_before_it() -> None:
    expired = event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
    stream = event("ADDED", widget("a")) + expired + event("ADDED", widget("b"))
    ends = asyncio.get_running_loop().time() + 60
    watch = Watch(chunked([stream]), EventDecoder(Widget), ends=ends)
    seen: list[str] = []

    async def read() -> None:
        async for found in watch:
            seen.append(found.object.name)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(errors.Gone, match="too old"):
        await read()

    assert seen == ["a"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (event("MODIFIED", widget("odd", size="large")), "Expected `int`"),
        (event("MODIFIED", {"metadata": {"name": "odd"}}), "missing required field `spec`"),
        (event("UPSIDEDOWN", widget("odd")), "Invalid enum value"),
        (b'{"type": "ADDED", "object": {"metadata": {"name": "odd"}, "spec": \n', "truncated"),
        (b"\xff\xfe\n", "malformed"),
        (b'{"type":"ADDED","object":{"metadata":{"name":"\xff"},"spec":{"size":1}}}\n', "utf"),
        (b'{"type":"ADDED","object":{"x":' + b"[" * 10_000 + b"\n", "recursion"),
    ],
)
async def test_undecodable_line_is_reported_and_the_next_one_is_read(
    line: bytes, message: str
) -> None:
    [[odd, good]] = await watched(line + event("ADDED", widget("good")))

    assert odd.type == "UNDECODABLE"
    assert message.lower() in odd.error.lower()
    assert line.startswith(odd.raw[:50])
    assert len(odd.raw) <= SAMPLE_BYTES
    assert good.object.name == "good"


async def test_undecodable_object_keeps_its_metadata() -> None:
    [[odd]] = await watched(event("MODIFIED", widget("odd", size="large", version=9)))

    assert (odd.object.name, odd.object.namespace) == ("odd", "ns")
    assert odd.object.metadata.resource_version == "9"


async def test_incomplete_last_line_is_no_event() -> None:
    assert await watched(event("ADDED", widget("a"))[:-5]) == []


async def test_a_server_that_never_ends_the_watch_is_timed_out() -> None:
    async def silent() -> AsyncIterator[bytes]:
        yield event("ADDED", widget("a"))
        await asyncio.sleep(86_400)

    loop = asyncio.get_running_loop()
    watch = Watch(silent(), EventDecoder(Widget), ends=loop.time() + 60)

    with pytest.raises(errors.TimedOut):
        [found async for found in watch]

    assert loop.time() == pytest.approx(60)


def test_neither_repr_nor_log_shows_the_raw_line() -> None:
    line = msgspec.json.encode({"type": "ADDED", "object": {"metadata": {}, "data": "hunter2"}})
    [[odd]] = list(EventDecoder(Widget).batches(line + b"\n"))

    assert b"hunter2" in odd.raw
    assert "hunter2" not in repr(odd)
