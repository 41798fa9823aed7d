"""The output of a container, streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from bramley.base import errors
from bramley.kube.transport import Stream


async def chunks(
    opening: AbstractAsyncContextManager[Stream], *, silence: timedelta
) -> AsyncGenerator[bytes, None]:
    """Yield pieces as they come; a stream that is silent for too long is TimedOut."""
    async with opening as stream:
        while True:
            try:
                async with asyncio.timeout(silence.total_seconds()):
                    chunk = await anext(stream.chunks, None)
            except TimeoutError:
                raise errors.TimedOut(f"no output came for {silence}") from None
            if chunk is None:
                return
            yield chunk
