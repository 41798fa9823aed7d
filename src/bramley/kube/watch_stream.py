"""The watch stream: chunks of bytes become batches of typed events.

It is fast because nothing is done per event: a chunk is cut once at its last line end, and all its lines are decoded by one
call. Only when that fails is the block decoded line by line, to distinguish bookmarks of kinds with required fields, the
server's ERROR and undecodable lines. Memory is bounded by the longest accepted line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Generic, Literal, cast

import msgspec

from bramley.api.meta import Fields, K, Object, ObjectMeta
from bramley.base import errors
from bramley.kube import status

MAX_LINE_BYTES = 16 * 1024 * 1024
SAMPLE_BYTES = 4096

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "UNDECODABLE"]
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class WatchEvent(msgspec.Struct, Generic[K], frozen=True, gc=False):
    """One change of one object.

    Of a BOOKMARK and of an UNDECODABLE only `object.metadata` may be read: the rest may be missing. The `error` of an
    UNDECODABLE is why its line does not fit the type, and `raw` is the beginning of that line.
    """

    type: EventType
    object: K
    error: str = ""
    raw: bytes = b""

    def __repr__(self) -> str:
        # Without the raw line: it may be that of a Secret.
        return f"WatchEvent({self.type}, {self.object!r}, error={self.error!r})"


class Lines:
    """Splits a stream of chunks into blocks of whole lines; buffers at most one line of bounded length."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._parts: list[bytes] = []
        self._buffered = 0

    def feed(self, chunk: bytes) -> bytes:
        """Return all lines that are complete by now, possibly none; of a line that is too long only a sample is returned."""
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            self._buffer(chunk)
            return b""
        block = b"".join((*self._parts, self._first_line_and_rest(chunk[:cut])))
        self._parts, self._buffered = [], 0
        self._buffer(chunk[cut:])
        return block

    def _first_line_and_rest(self, chunk: bytes) -> bytes:
        if self._buffered <= self._max_line_bytes:
            return chunk
        return chunk[chunk.index(b"\n") :]

    def _buffer(self, chunk: bytes) -> None:
        if not chunk:
            return
        self._buffered += len(chunk)
        if self._buffered <= self._max_line_bytes:
            self._parts.append(chunk)
        else:
            # The sample is cut short, so decoding it fails and it is reported like any other undecodable line.
            self._parts = [b"".join(self._parts)[:SAMPLE_BYTES] or chunk[:SAMPLE_BYTES]]


class _RawEvent(Fields, frozen=True, kw_only=True):
    type: str
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _OnlyMetadata(Fields, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


_RAW = msgspec.json.Decoder(_RawEvent)
_ONLY_METADATA = msgspec.json.Decoder(_OnlyMetadata)


def metadata_of(raw: bytes | msgspec.Raw) -> ObjectMeta:
    """Return the metadata of an object that does not fit its type, or empty metadata."""
    try:
        return _ONLY_METADATA.decode(raw).metadata
    except DECODE_ERRORS:
        return ObjectMeta()


class EventDecoder(Generic[K]):
    """Turns blocks of lines into events of one kind."""

    def __init__(self, kind: type[K]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(WatchEvent[kind])  # type: ignore[valid-type]

    def batches(self, block: bytes) -> Iterator[list[WatchEvent[K]]]:
        """Decode a block; an ERROR of the server is raised after the events before it."""
        try:
            events = cast("list[WatchEvent[K]]", self._decoder.decode_lines(block))
        except DECODE_ERRORS:
            yield from self._line_by_line(block)
        else:
            yield events

    def _line_by_line(self, block: bytes) -> Iterator[list[WatchEvent[K]]]:
        events: list[WatchEvent[K]] = []
        for line in block.split(b"\n"):
            if not line.strip():
                continue
            try:
                events.append(self._decode_line(line))
            except errors.BramleyError:
                yield events
                raise
        yield events

    def _decode_line(self, line: bytes) -> WatchEvent[K]:
        try:
            return cast("WatchEvent[K]", self._decoder.decode(line))
        except DECODE_ERRORS as error:
            return self._decode_special(line, error)

    def _decode_special(self, line: bytes, error: Exception) -> WatchEvent[K]:
        try:
            raw = _RAW.decode(line)
        except DECODE_ERRORS:
            raw = _RawEvent(type="")
        if raw.type == "ERROR":
            about = f"watch of {self._kind.resource.plural}"
            raise status.error(about, status.parse(bytes(raw.object))) from None
        metadata_only = cast("K", Object(metadata=metadata_of(raw.object)))
        if raw.type == "BOOKMARK":
            return WatchEvent("BOOKMARK", metadata_only)
        return WatchEvent("UNDECODABLE", metadata_only, describe(error), line[:SAMPLE_BYTES])


def describe(error: Exception) -> str:
    """Return why a value could not be decoded."""
    return status.bounded(str(error)) or type(error).__name__


class Watch(Generic[K]):
    """An open watch: iterate it for single events, or `batches()` for all that arrived together.

    It ends when the server ends it. It raises `Gone` when the version is too old, `ApiUnavailable` when the connection
    breaks, and `TimedOut` when the server did not end it in time.
    """

    def __init__(
        self, chunks: AsyncIterator[bytes], decoder: EventDecoder[K], *, ends: float
    ) -> None:
        self._chunks = chunks
        self._decoder = decoder
        self._ends = ends

    async def batches(self) -> AsyncGenerator[list[WatchEvent[K]], None]:
        """Yield events in lists, one for each chunk of the stream; never an empty one."""
        lines = Lines()
        while True:
            chunk = await self._next_chunk()
            if chunk is None:
                return
            block = lines.feed(chunk)
            for batch in self._decoder.batches(block) if block else ():
                if batch:
                    yield batch

    async def _next_chunk(self) -> bytes | None:
        try:
            async with asyncio.timeout_at(self._ends):
                return await anext(self._chunks, None)
        except TimeoutError:
            raise errors.TimedOut("the server did not end the watch in time") from None

    async def __aiter__(self) -> AsyncGenerator[WatchEvent[K], None]:
        async for batch in self.batches():
            for event in batch:
                yield event
