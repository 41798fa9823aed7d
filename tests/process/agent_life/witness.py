"""Sees every call of tart and every write to the API of one agent, before and after, and may kill the agent there and then.

Calls of tart are told by the program itself, which waits for the answer; writes go through a proxy. A call goes on when its
agent is dead, as any program does; a write that was not forwarded never reached the server, and one that was is not answered.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from yarl import URL

import bramley
from bramley.kube.config import ClientConfig
from bramley.sim.mac.folder import MacFolder
from tests.process.agent_life import naming

# Takes a moment and the number of the agent whose it is; returns whether that agent was killed there.
Meet = Callable[[str, int], bool]
# By this the programs of an agent know which one started them.
NUMBER_VARIABLE = "AGENT_NUMBER"
# A run is nobody's any more once it goes on by itself.
ANYBODY = 0
ENDED = "PATCH pods/status Failed"

_HOP_BY_HOP = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding"}
_NO_LIMIT = ClientTimeout(total=None, sock_connect=30)
_MOST_BYTES = 16 * 1024 * 1024

_TART = """\
#!{python} -ISE
import gc, json, os, socket, sys
gc.disable()
sys.path.insert(0, {package!r})


def tell(when):
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect({line!r})
            line.sendall(json.dumps([when, os.environ.get({variable!r}), *sys.argv[1:]]).encode() + b"\\n")
            line.recv(1)
        except OSError:
            pass  # the test is over


tell("before")
from bramley.sim.tart import process
code = process.run(sys.argv[1:], {home!r})
tell("after")
os._exit(code)
"""


class Witness:
    """Tells `meet` of every moment, and keeps what tart was called with."""

    def __init__(self, access: ClientConfig, meet: Meet) -> None:
        # The calls of tart as they began, with their VMs, and the writes as they were handed to the server.
        self.journal: list[str] = []
        self.address = ""
        self._access = access
        self._meet = meet
        self._session: ClientSession | None = None

    @asynccontextmanager
    async def watching(self, mac: MacFolder) -> AsyncIterator[None]:
        """Stand between the agent of a Mac and both its tart and its server."""
        line = mac.root / "line"
        install(mac, line)
        listener = await asyncio.start_unix_server(self._hear, line)
        application = web.Application(client_max_size=_MOST_BYTES)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        # Watches end with their agent, and what hangs when the test is over is cut off.
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        connector = TCPConnector(ssl=self._trust(), limit=0)
        async with ClientSession(connector=connector, auto_decompress=False) as self._session:
            await site.start()
            self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield
            finally:
                await runner.cleanup()
                listener.close()

    def check_order(self, vm: str) -> None:
        """Check what became of a VM: one start, its end told, then its disk deleted, then its Pod let go."""
        starts = [place for place, each in enumerate(self.journal) if _is_start(each, vm)]
        assert len(starts) == 1, f"{vm} was started {len(starts)} times"
        later = self.journal[starts[0] :]
        wanted = (ENDED, f"tart delete {vm}", "PATCH pods release")
        found = [each for line in later for each in wanted if line.startswith(each)]
        assert tuple(dict.fromkeys(found)) == wanted, later

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self._access.trust.authorities)

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            when, number, *words = json.loads(await reader.readline())
            if when == "before":
                self.journal.append(" ".join(["tart", *words]))
            if number is not None:
                whose = ANYBODY if words[:1] == ["run"] else int(number)
                self._meet(f"{when} {naming.call(words)}", whose)
            writer.write(b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            return
        finally:
            writer.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        # Each agent has a way in of its own: what a dead one had sent is told from what the next one sends.
        _, number, path = request.raw_path.split("/", 2)
        name = naming.write(request.method, path.partition("?")[0], body)
        if name and self._meet(f"before {name}", int(number)):
            raise web.HTTPServiceUnavailable
        if name:
            self.journal.append(name)
        kept = {key: value for key, value in request.headers.items() if _is_kept(key)}
        assert self._session is not None
        async with self._session.request(
            request.method,
            URL(f"{self._access.server}/{path}", encoded=True),
            headers=kept,
            data=body or None,
            timeout=_NO_LIMIT,
        ) as answer:
            if name:
                said = await answer.read()
                # The answer gets lost when there is nobody to hear it.
                self._meet(f"after {name}", int(number))
                return web.Response(status=answer.status, body=said, headers=_told(answer.headers))
            return await _stream(request, answer)


def _is_start(call: str, vm: str) -> bool:
    words = call.split()
    return words[:2] == ["tart", "run"] and vm in words


def install(mac: MacFolder, line: Path) -> None:
    """Make the Mac's tart tell by this line what it does."""
    package = Path(bramley.__file__).parents[1]
    text = _TART.format(
        python=sys.executable,
        package=str(package),
        line=str(line),
        home=str(mac.folders.tart_home),
        variable=NUMBER_VARIABLE,
    )
    written = mac.programs / ".tart.new"
    written.write_text(text)
    written.chmod(0o700)
    written.replace(mac.programs / "tart")


async def _stream(request: web.Request, answer: Any) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=_told(answer.headers))
    await response.prepare(request)
    with suppress(ConnectionError):
        async for part in answer.content.iter_any():
            await response.write(part)
        await response.write_eof()
    return response


def _told(headers: Any) -> dict[str, str]:
    return {key: value for key, value in headers.items() if _is_kept(key)}


def _is_kept(header: str) -> bool:
    return header.lower() not in _HOP_BY_HOP
