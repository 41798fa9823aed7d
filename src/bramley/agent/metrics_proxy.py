"""Metrics of guests, reached through the Node: a guest's own address is known on its Mac only.

A Pod opts in by annotations. Then `<node>:<port>/metrics` is passed on to the guest, for GET and HEAD from allowed networks and
for nothing else. Each answer is passed on as it comes and ends its connection, so no connection outlives the VM behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from bramley.agent.platform import interfaces
from bramley.api import names
from bramley.api.pod import Pod
from bramley.base import errors, log
from bramley.base.clock import Clock

logger = log.get(__name__)

# Who may scrape where nobody says otherwise: private networks, the tailnet and this host.
PRIVATE = (
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
    *("127.0.0.0/8", "fc00::/7", "fe80::/10", "::1/128"),
)
PATH = "/metrics"
_HEAD_BYTES = 16 * 1024
_BLOCK = 64 * 1024
_PORTS = range(1, 65536)
# Python reads no number of thousands of digits, and a Pod that raises is never told to run.
_LONGEST_PORT = 5
_LAST_WORDS = timedelta(seconds=1)

FindAddress = Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long each part of a request may take, how long a guest's address is believed, and how many scrape at once."""

    head: timedelta = timedelta(seconds=10)
    dial: timedelta = timedelta(seconds=5)
    silence: timedelta = timedelta(seconds=10)
    address: timedelta = timedelta(seconds=5)
    believed: timedelta = timedelta(seconds=30)
    at_once: int = 8


@dataclass(slots=True)
class _Door:
    """One port of the Node and the VM behind it."""

    vm: str
    port: int
    server: asyncio.Server
    address: str = ""
    believed_until: float = float("-inf")


@dataclass(slots=True)
class Scraping:
    """Opens the Node's ports for guests that want to be scraped; `find` asks for a VM's address."""

    host: str
    find: FindAddress
    vms: Callable[[], Collection[str]]
    clock: Clock
    allowed: Sequence[str] = PRIVATE
    limits: Limits = field(default_factory=Limits)
    _doors: dict[str, _Door] = field(default_factory=dict)
    _under_way: int = 0

    async def shown(self, pod: Pod, vm: str, address: str) -> str:
        """Return the address to tell of a Pod: the Node's if its metrics are passed on, else the guest's own."""
        port = wanted_port(pod)
        if port is None or not self.host:
            return address
        self._sweep()
        if vm not in self._doors and not await self._open(vm, port):
            return address
        return self.host

    def close(self) -> None:
        """Close all ports."""
        for door in self._doors.values():
            door.server.close()
        self._doors.clear()

    def _sweep(self) -> None:
        """Close the ports of VMs that are gone."""
        for vm in self._doors.keys() - set(self.vms()):
            self._doors.pop(vm).server.close()

    async def _open(self, vm: str, port: int) -> bool:
        try:
            server = await asyncio.start_server(
                partial(self._serve, vm), self.host, port, limit=_HEAD_BYTES
            )
        except OSError as error:
            logger.warning(
                "A guest's metrics are not passed on", vm=vm, port=port, error=str(error)
            )
            return False
        self._doors[vm] = _Door(vm, port, server)
        logger.info("Passing a guest's metrics on", vm=vm, port=port)
        return True

    async def _serve(
        self, vm: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._under_way += 1
        try:
            refusal = await self._answer(vm, reader, writer)
            if refusal:
                writer.write(_plain(refusal))
                await self._within(writer.drain())
                writer.write_eof()
                # What was not read yet would make the system throw our answer away.
                async with asyncio.timeout(_LAST_WORDS.total_seconds()):
                    await reader.read(_HEAD_BYTES)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            logger.debug("Scrape ended early", vm=vm)
        finally:
            self._under_way -= 1
            writer.close()

    async def _answer(
        self, vm: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> str:
        if not self._is_allowed(writer.get_extra_info("peername")):
            return "403 Forbidden"
        if self._under_way > self.limits.at_once:
            return "503 Service Unavailable"
        async with asyncio.timeout(self.limits.head.total_seconds()):
            head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path != PATH:
            return "404 Not Found"
        if method not in {"GET", "HEAD"}:
            return "405 Method Not Allowed"
        return await self._pass_on(vm, method, writer)

    async def _pass_on(self, vm: str, method: str, writer: asyncio.StreamWriter) -> str:
        door = self._doors.get(vm)
        try:
            guest_reader, guest_writer = await self._dial(door) if door else (None, None)
        except (errors.BramleyError, OSError, TimeoutError) as error:
            # The caller learns nothing of what is behind us.
            logger.info("Guest not reached", vm=vm, error=str(error))
            guest_reader = guest_writer = None
        if guest_reader is None or guest_writer is None:
            return "502 Bad Gateway"
        request = f"{method} {PATH} HTTP/1.1\r\nHost: {vm}\r\nConnection: close\r\n\r\n"
        with contextlib.closing(guest_writer):
            guest_writer.write(request.encode())
            while block := await self._within(guest_reader.read(_BLOCK)):
                writer.write(block)
                await self._within(writer.drain())
        return ""

    async def _dial(self, door: _Door) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = await self._address(door)
        with contextlib.ExitStack() as undo:
            connection = undo.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            connection.setblocking(False)
            interfaces.towards(connection, address)
            async with asyncio.timeout(self.limits.dial.total_seconds()):
                await asyncio.get_running_loop().sock_connect(connection, (address, door.port))
            opened = await asyncio.open_connection(sock=connection)
            undo.pop_all()
            return opened

    async def _address(self, door: _Door) -> str:
        now = self.clock.monotonic()
        if now >= door.believed_until:
            async with asyncio.timeout(self.limits.address.total_seconds()):
                found = await self.find(door.vm)
            if not found:
                raise errors.NotFound(f"VM {door.vm} has no address")
            door.address, door.believed_until = found, now + self.limits.believed.total_seconds()
        return door.address

    async def _within(self, waiting: Awaitable[bytes | None]) -> bytes | None:
        async with asyncio.timeout(self.limits.silence.total_seconds()):
            return await waiting

    def _is_allowed(self, peer: tuple[str, int] | None) -> bool:
        if not peer:
            return False
        caller = ipaddress.ip_address(peer[0].partition("%")[0])
        return any(caller in ipaddress.ip_network(each) for each in self.allowed or PRIVATE)


def wanted_port(pod: Pod) -> int | None:
    """Return the port on which a Pod wants to be scraped; None if it does not, or names no port."""
    told = pod.metadata.annotations
    port = told.get(names.annotations.SCRAPE_PORT, "")
    if told.get(names.annotations.SCRAPE) != names.labels.TRUE or not (
        port.isascii() and port.isdigit() and len(port) <= _LONGEST_PORT
    ):
        return None
    return int(port) if int(port) in _PORTS else None


def _plain(line: str) -> bytes:
    text = line.partition(" ")[2] + "\n"
    head = f"HTTP/1.1 {line}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return (head + text).encode()
