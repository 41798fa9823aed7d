"""Record every tart command and every write to the API of one agent, and report each as a crash point before and after.

The tart program reports its own calls and waits for the reply; writes go through a proxy. A command continues when its agent
is killed, as any child process does; a write is either not forwarded at all, or forwarded and not answered.
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
from tests.process.agent_life import crash_points

# Called with a crash point and the number of the agent; returns whether that agent was killed there.
OnCrashPoint = Callable[[str, int], bool]
# Names the agent that started a program.
NUMBER_VARIABLE = "AGENT_NUMBER"
# The number for `tart run`, which belongs to no agent once its supervisor has started it.
RUN_SUPERVISOR = 0
FAILED_STATUS = "PATCH pods/status Failed"

_HOP_BY_HOP = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding"}
_NO_LIMIT = ClientTimeout(total=None, sock_connect=30)
_MOST_BYTES = 16 * 1024 * 1024

_TART = """\
#!{python} -ISE
import gc, json, os, socket, sys
gc.disable()
sys.path.insert(0, {package!r})


def report(when):
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect({socket!r})
            line.sendall(json.dumps([when, os.environ.get({variable!r}), *sys.argv[1:]]).encode() + b"\\n")
            line.recv(1)
        except OSError:
            pass  # the test is over


report("before")
from bramley.sim.tart import process
code = process.run(sys.argv[1:], {home!r})
report("after")
os._exit(code)
"""


class CallRecorder:
    """Reports every crash point, and records the tart commands and writes in order."""

    def __init__(self, access: ClientConfig, on_crash_point: OnCrashPoint) -> None:
        # The tart commands as they began, with their VMs, and the writes as they were forwarded to the server.
        self.journal: list[str] = []
        self.address = ""
        self._access = access
        self._on_crash_point = on_crash_point
        self._session: ClientSession | None = None

    @asynccontextmanager
    async def recording(self, mac: MacFolder) -> AsyncIterator[None]:
        """Intercept what the agent of a Mac sends to tart and to its server."""
        socket = mac.root / "calls.sock"
        install(mac, socket)
        listener = await asyncio.start_unix_server(self._record_call, socket)
        application = web.Application(client_max_size=_MOST_BYTES)
        application.router.add_route("*", "/{path:.*}", self._forward)
        # Watches end with their agent; requests that still run when the test is over are cancelled.
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
        """Check the order for a VM: one start, its failure published, its disk deleted, its Pod's finalizer removed."""
        starts = [index for index, each in enumerate(self.journal) if _is_start(each, vm)]
        assert len(starts) == 1, f"{vm} was started {len(starts)} times"
        later = self.journal[starts[0] :]
        expected = (FAILED_STATUS, f"tart delete {vm}", "PATCH pods release")
        found = [each for line in later for each in expected if line.startswith(each)]
        assert tuple(dict.fromkeys(found)) == expected, later

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self._access.trust.authorities)

    async def _record_call(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            when, number, *words = json.loads(await reader.readline())
            if when == "before":
                self.journal.append(" ".join(["tart", *words]))
            if number is not None:
                whose = RUN_SUPERVISOR if words[:1] == ["run"] else int(number)
                self._on_crash_point(f"{when} {crash_points.call(words)}", whose)
            writer.write(b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            return
        finally:
            writer.close()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        # Each agent has its own address, which distinguishes late requests of a killed agent from those of the next one.
        _, number, path = request.raw_path.split("/", 2)
        name = crash_points.write(request.method, path.partition("?")[0], body)
        if name and self._on_crash_point(f"before {name}", int(number)):
            raise web.HTTPServiceUnavailable
        if name:
            self.journal.append(name)
        headers = _forwarded(request.headers)
        assert self._session is not None
        async with self._session.request(
            request.method,
            URL(f"{self._access.server}/{path}", encoded=True),
            headers=headers,
            data=body or None,
            timeout=_NO_LIMIT,
        ) as answer:
            if name:
                content = await answer.read()
                # The response is lost if the agent was killed here.
                self._on_crash_point(f"after {name}", int(number))
                return web.Response(
                    status=answer.status, body=content, headers=_forwarded(answer.headers)
                )
            return await _stream(request, answer)


def _is_start(call: str, vm: str) -> bool:
    words = call.split()
    return words[:2] == ["tart", "run"] and vm in words


def install(mac: MacFolder, socket: Path) -> None:
    """Replace the Mac's tart by one that reports its calls to this socket."""
    package = Path(bramley.__file__).parents[1]
    text = _TART.format(
        python=sys.executable,
        package=str(package),
        socket=str(socket),
        home=str(mac.folders.tart_home),
        variable=NUMBER_VARIABLE,
    )
    written = mac.programs / ".tart.new"
    written.write_text(text)
    written.chmod(0o700)
    written.replace(mac.programs / "tart")


async def _stream(request: web.Request, answer: Any) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=_forwarded(answer.headers))
    await response.prepare(request)
    with suppress(ConnectionError):
        async for part in answer.content.iter_any():
            await response.write(part)
        await response.write_eof()
    return response


def _forwarded(headers: Any) -> dict[str, str]:
    return {key: value for key, value in headers.items() if _is_end_to_end(key)}


def _is_end_to_end(header: str) -> bool:
    return header.lower() not in _HOP_BY_HOP
