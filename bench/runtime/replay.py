"""The server: answers with bytes that were encoded in advance, so that the client is always the slower side.

`python -m bench.runtime.replay EVENTS` prints its port and serves until it is ended. It knows the requests of the clients:
discovery, lists in pages, and a watch that sends every event and then stays open.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, urlsplit

from bench.runtime import workload
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import Namespace
from bramley.api.meta import Resource
from bramley.api.runner_pool import RunnerPool

PLACE = RunnerPool.resource
DEFINITIONS = CustomResourceDefinition.resource
SPACES = Namespace.resource


def group_of(place: Resource) -> dict[str, object]:
    """Return the discovery document of a group with one version."""
    version = {"groupVersion": place.api_version, "version": place.version}
    return {"name": place.group, "versions": [version], "preferredVersion": version}


def resources_of(place: Resource) -> dict[str, object]:
    """Return the discovery document of a version with one resource."""
    resource = {
        "name": place.plural,
        "singularName": place.kind.lower(),
        "namespaced": place.namespaced,
        "kind": place.kind,
        "verbs": ["get", "list", "watch", "patch"],
    }
    return {
        "kind": "APIResourceList",
        "groupVersion": place.api_version,
        "resources": [resource],
    }


DISCOVERY: Mapping[str, object] = {
    "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [group_of(PLACE), group_of(DEFINITIONS)],
    },
    SPACES.root: resources_of(SPACES),
    PLACE.root: resources_of(PLACE),
    # kopf waits for these two before it watches anything.
    DEFINITIONS.root: resources_of(DEFINITIONS),
}
NOTHING = b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
EMPTY = {SPACES.path(), DEFINITIONS.path()}
WATCHING = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
CHUNK_BYTES = 64 * 1024
PAGE = 500


class Replay:
    """Holds the encoded answers."""

    def __init__(self, events: int) -> None:
        self.pages: dict[tuple[int, int], bytes] = {}
        # The pages that Bramley's client asks for; kopf asks for the whole list, before its clock runs.
        for start in range(0, workload.OBJECTS, PAGE):
            self.page({"continue": str(start), "limit": str(PAGE)})
        lines = list(workload.events(events))
        self.chunks = [b"%x\r\n%s\r\n" % (len(block), block) for block in joined(lines)]

    def page(self, query: Mapping[str, str]) -> bytes:
        """Return one page, encoded on its first use."""
        start = int(query.get("continue") or 0)
        limit = int(query.get("limit") or workload.OBJECTS)
        if (start, limit) not in self.pages:
            self.pages[start, limit] = workload.page(start, limit)
        return self.pages[start, limit]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until it ends."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self.answer(head.split(b" ", 2)[1].decode(), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        """Answer one GET."""
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        path = parts.path.rstrip("/")
        if path in DISCOVERY:
            whole(writer, b"200 OK", workload.encoded(DISCOVERY[path]))
        elif path not in EMPTY and not path.endswith(f"/{PLACE.plural}"):
            whole(writer, b"404 Not Found", b'{"kind":"Status","code":404,"status":"Failure"}')
        elif query.get("watch") in {"true", "1", "True"}:
            await self.watch(writer, () if path in EMPTY else self.chunks)
        else:
            whole(writer, b"200 OK", NOTHING if path in EMPTY else self.page(query))
        await writer.drain()

    async def watch(self, writer: asyncio.StreamWriter, chunks: Iterable[bytes]) -> None:
        """Send every event as fast as the other side takes them, then stay open."""
        writer.write(WATCHING)
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()


def joined(lines: list[bytes]) -> list[bytes]:
    """Return the lines in blocks of about a socket buffer's size, as a server under load sends them."""
    per_block = CHUNK_BYTES // len(lines[0]) if lines else 1
    starts = range(0, len(lines), per_block)
    return [b"".join(lines[start : start + per_block]) for start in starts]


def whole(writer: asyncio.StreamWriter, status: bytes, body: bytes) -> None:
    """Send a whole answer."""
    writer.write(
        b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % (status, len(body))
        + body
    )


async def main(events: int) -> None:
    """Serve on a free port of this machine and print the port."""
    replay = Replay(events)
    server = await asyncio.start_server(replay.serve, "127.0.0.1", 0, limit=1 << 20)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
