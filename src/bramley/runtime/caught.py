"""Where any error is caught: around code that others give us, so that a bug in it ends nothing but its own turn."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Caught:
    """Keeps an error that would else leave the block; cancellation and the end of the process pass."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, Exception):
            self.error = error
            return True
        return False
