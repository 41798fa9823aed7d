"""A proxy for the metrics of guests: a guest's own address is reachable only from its Mac.

A Pod opts in by annotations. Then `<node>:<port>/metrics` is proxied to the guest, only for GET and HEAD and only from allowed
networks. Each response is streamed and ends its connection, so no connection outlives its VM.
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

# The networks that may scrape by default: private networks, the tailnet and this host.
PRIVATE_NETWORKS = (
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
    *("127.0.0.0/8", "fc00::/7", "fe80::/10", "::1/128"),
)
PATH = "/metrics"
_HEAD_BYTES = 16 * 1024
_BLOCK = 64 * 1024
_PORTS = range(1, 65536)
# int() raises for thousands of digits, and an error here would keep the Pod's status from being published.
_MAX_PORT_DIGITS = 5
_LINGER_TIMEOUT = timedelta(seconds=1)

FindAddress = Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of a request, the time to live of a guest's address, and the number of concurrent scrapes."""

    request_head: timedelta = timedelta(seconds=10)
    dial: timedelta = timedelta(seconds=5)
    idle: timedelta = timedelta(seconds=10)
    address: timedelta = timedelta(seconds=5)
    address_ttl: timedelta = timedelta(seconds=30)
    max_concurrent: int = 8


@dataclass(slots=True)
class _Listener:
    """A port of the Node and the VM that it is proxied to."""

    vm: str
    port: int
    server: asyncio.Server
    address: str = ""
    address_valid_until: float = float("-inf")


@dataclass(slots=True)
class MetricsProxy:
    """Listens on the Node for guests that opted in; `find_address` returns a VM's address."""

    host: str
    find_address: FindAddress
    vms: Callable[[], Collection[str]]
    clock: Clock
    allowed: Sequence[str] = PRIVATE_NETWORKS
    limits: Limits = field(default_factory=Limits)
    _listeners: dict[str, _Listener] = field(default_factory=dict)
    _active: int = 0

    async def pod_address(self, pod: Pod, vm: str, address: str) -> str:
        """Return the Pod IP to publish: the Node's address if it proxies the guest's metrics, else the guest's."""
        port = scrape_port(pod)
        if port is None or not self.host:
            return address
        # First: the port may belong to a VM that is gone.
        self._close_unused()
        if vm not in self._listeners and not await self._open(vm, port):
            return address
        return self.host

    def close(self) -> None:
        """Close all ports."""
        for listener in self._listeners.values():
            listener.server.close()
        self._listeners.clear()

    def _close_unused(self) -> None:
        """Close the ports of VMs that are gone."""
        for vm in self._listeners.keys() - set(self.vms()):
            self._listeners.pop(vm).server.close()

    async def _open(self, vm: str, port: int) -> bool:
        try:
            server = await asyncio.start_server(
                partial(self._serve, vm), self.host, port, limit=_HEAD_BYTES
            )
        except OSError as error:
            logger.warning("Guest metrics proxy cannot listen", vm=vm, port=port, error=str(error))
            return False
        self._listeners[vm] = _Listener(vm, port, server)
        logger.info("Proxying guest metrics", vm=vm, port=port)
        return True

    async def _serve(
        self, vm: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._active += 1
        try:
            refusal = await self._handle_request(vm, reader, writer)
            if refusal:
                writer.write(_text_response(refusal))
                await self._with_timeout(writer.drain())
                writer.write_eof()
                # Read the rest of the request: closing with unread data would reset the connection and lose the response.
                async with asyncio.timeout(_LINGER_TIMEOUT.total_seconds()):
                    await reader.read(_HEAD_BYTES)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            logger.debug("Guest metrics scrape ended early", vm=vm)
        finally:
            self._active -= 1
            writer.close()

    async def _handle_request(
        self, vm: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> str:
        if not self._is_allowed(writer.get_extra_info("peername")):
            return "403 Forbidden"
        if self._active > self.limits.max_concurrent:
            return "503 Service Unavailable"
        async with asyncio.timeout(self.limits.request_head.total_seconds()):
            request_head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = request_head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path != PATH:
            return "404 Not Found"
        if method not in {"GET", "HEAD"}:
            return "405 Method Not Allowed"
        return await self._proxy(vm, method, writer)

    async def _proxy(self, vm: str, method: str, writer: asyncio.StreamWriter) -> str:
        listener = self._listeners.get(vm)
        try:
            guest_reader, guest_writer = await self._dial(listener) if listener else (None, None)
        except (errors.BramleyError, OSError, TimeoutError) as error:
            # The error is logged and not returned: it must not disclose details of the guest's network.
            logger.info("Guest metrics not reachable", vm=vm, error=str(error))
            guest_reader = guest_writer = None
        if guest_reader is None or guest_writer is None:
            return "502 Bad Gateway"
        request = f"{method} {PATH} HTTP/1.1\r\nHost: {vm}\r\nConnection: close\r\n\r\n"
        with contextlib.closing(guest_writer):
            guest_writer.write(request.encode())
            while block := await self._with_timeout(guest_reader.read(_BLOCK)):
                writer.write(block)
                await self._with_timeout(writer.drain())
        return ""

    async def _dial(self, listener: _Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = await self._address(listener)
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            connection.setblocking(False)
            interfaces.bind_to_interface_of(connection, address)
            async with asyncio.timeout(self.limits.dial.total_seconds()):
                await asyncio.get_running_loop().sock_connect(connection, (address, listener.port))
            streams = await asyncio.open_connection(sock=connection)
            stack.pop_all()
            return streams

    async def _address(self, listener: _Listener) -> str:
        now = self.clock.monotonic()
        if now >= listener.address_valid_until:
            async with asyncio.timeout(self.limits.address.total_seconds()):
                address = await self.find_address(listener.vm)
            if not address:
                raise errors.NotFound(f"VM {listener.vm} has no address")
            listener.address = address
            listener.address_valid_until = now + self.limits.address_ttl.total_seconds()
        return listener.address

    async def _with_timeout(self, awaitable: Awaitable[bytes | None]) -> bytes | None:
        async with asyncio.timeout(self.limits.idle.total_seconds()):
            return await awaitable

    def _is_allowed(self, peer: tuple[str, int] | None) -> bool:
        if not peer:
            return False
        caller = ipaddress.ip_address(peer[0].partition("%")[0])
        networks = map(ipaddress.ip_network, self.allowed or PRIVATE_NETWORKS)
        return any(caller in network for network in networks)


def scrape_port(pod: Pod) -> int | None:
    """Return the port of a Pod's scrape annotations; None if it has not opted in, or the port is not valid."""
    annotations = pod.metadata.annotations
    port = annotations.get(names.annotations.SCRAPE_PORT, "")
    if annotations.get(names.annotations.SCRAPE) != names.labels.TRUE or not (
        port.isascii() and port.isdigit() and len(port) <= _MAX_PORT_DIGITS
    ):
        return None
    return int(port) if int(port) in _PORTS else None


def _text_response(line: str) -> bytes:
    text = line.partition(" ")[2] + "\n"
    head = f"HTTP/1.1 {line}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return (head + text).encode()
