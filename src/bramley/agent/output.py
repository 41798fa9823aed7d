"""What a program says, kept within bounds: the head of one stream, the tail of another, and lines as they come."""

from __future__ import annotations

from collections.abc import Callable

HEAD = 4 * 1024 * 1024
TAIL = 32 * 1024
LINE = 64 * 1024


class Head:
    """Keeps the first bytes and lets the rest go by."""

    def __init__(self, limit: int = HEAD) -> None:
        self._limit = limit
        self._kept = bytearray()

    def feed(self, block: bytes) -> None:
        """Take what came."""
        self._kept += block[: self._limit - len(self._kept)]

    def text(self) -> str:
        """Return what was kept; bytes that are no text are shown as such."""
        return self._kept.decode(errors="replace")


class Tail:
    """Keeps the last bytes."""

    def __init__(self, limit: int = TAIL) -> None:
        self._limit = limit
        self._kept = bytearray()

    def feed(self, block: bytes) -> None:
        """Take what came."""
        self._kept += block
        del self._kept[: -self._limit]

    def text(self) -> str:
        """Return what was kept."""
        return self._kept.decode(errors="replace")


class Lines:
    """Tells each line without its end; one that is too long is told in pieces."""

    def __init__(self, tell: Callable[[str], None], limit: int = LINE) -> None:
        self._tell = tell
        self._limit = limit
        self._rest = b""

    def feed(self, block: bytes) -> None:
        """Take what came."""
        *whole, self._rest = (self._rest + block).split(b"\n")
        for line in whole:
            self._say(line)
        if len(self._rest) >= self._limit:
            self.close()

    def close(self) -> None:
        """Tell what came after the last line's end."""
        if self._rest:
            self._say(self._rest)
        self._rest = b""

    def _say(self, line: bytes) -> None:
        self._tell(line.rstrip(b"\r").decode(errors="replace"))
