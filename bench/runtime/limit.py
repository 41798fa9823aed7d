"""The limit: the same socket library, the same framing, the same Struct, and nothing else.

`python -m bench.runtime.limit SERVER decoded` decodes each event and drops it; `drained` only reads the bytes, which
shows that the server is faster than any client that decodes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

import aiohttp
import msgspec

from bench.runtime import workload
from bramley.api.runner_pool import RunnerPool
from bramley.kube.watch_stream import Lines, WatchEvent


def decoding() -> Callable[[bytes], int]:
    """Return a function that decodes the complete lines of a chunk and returns how many there were."""
    decode = msgspec.json.Decoder(WatchEvent[RunnerPool]).decode_lines
    lines = Lines()
    return lambda chunk: len(decode(lines.feed(chunk)))


def draining() -> Callable[[bytes], int]:
    """Return a function that counts the lines of a chunk and does nothing else."""
    return lambda chunk: chunk.count(b"\n")


async def main(server: str, what: str) -> None:
    """Read the whole watch and print how long it took."""
    take = decoding() if what == "decoded" else draining()
    left = workload.EVENTS
    async with aiohttp.ClientSession(read_bufsize=1 << 18) as session:
        query = {"watch": "true", "resourceVersion": str(workload.OBJECTS)}
        began = time.perf_counter()
        async with session.get(server + workload.PATH, params=query) as response:
            async for chunk in response.content.iter_any():
                left -= take(chunk)
                if not left:
                    break
    sys.stdout.write(json.dumps({"seconds": time.perf_counter() - began}) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
