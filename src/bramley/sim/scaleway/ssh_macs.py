"""Simulated Macs behind SSH servers, one for each server: the same port on an own loopback address.

Scaleway's API shows only the address of a server, and port 22 is not free on a machine; so one port is used on every address, and
clients are configured with it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration
from bramley.sim.macos import fresh_install
from bramley.sim.macos.mac import Mac
from bramley.sim.scaleway.macs import Installation
from bramley.sim.scaleway.tasks import Tasks
from bramley.sim.ssh.server import SimulatedHost

NETWORK = IPv4Network("127.30.0.0/16")
_PORT_ATTEMPTS = 100


class SshMacs:
    """The Macs of one simulated Scaleway, inside `running`; all their processes end with it, and their disks stay until the next installation."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        network: IPv4Network = NETWORK,
        template: fresh_install.Settings | None = None,
        on_install: Callable[[SimulatedHost], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.port = port
        self._folder = folder
        self._network = network
        self._template = template or fresh_install.Settings()
        # Called after each installation.
        self._on_install = on_install
        self._clock = clock or SystemClock()
        self._addresses: dict[str, str] = {}
        self._served: dict[str, tuple[SimulatedHost, asyncio.Task[None]]] = {}
        self._tasks = Tasks()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve the Macs while the context lasts."""
        return self._tasks.running()

    def address(self, server_id: str) -> str:
        """Return the loopback address of a server."""
        if server_id not in self._addresses:
            number = max(map(self._number, self._addresses.values()), default=0) + 1
            self._addresses[server_id] = str(self._network[number])
        return self._addresses[server_id]

    def keep_address(self, server_id: str, address: str) -> None:
        """Give a server the address that it had before."""
        self._addresses[server_id] = address

    def host(self, server_id: str) -> SimulatedHost:
        """Return the Mac of a server; LookupError if it is off."""
        return self._served[server_id][0]

    async def install(self, server_id: str, installation: Installation) -> None:
        """Erase the disk of a Mac, install it and serve it."""
        settings, root = installation.settings(self._template), self._root(server_id)
        if Mac.is_complete(root):
            Mac(root, clock=self._clock).reinstall(settings)
        elif not Mac.can_be_created(root):
            raise BadConfiguration(
                f"{root} is not empty and not a simulated Mac; use another --root"
            )
        self._on_install(await self._switch_on(server_id, settings))

    async def shut_down(self, server_id: str) -> None:
        """Kill all processes of a Mac and stop its SSH server."""
        if server_id in self._served:
            _, task = self._served.pop(server_id)
            task.cancel()
            await asyncio.wait({task})

    async def reboot(self, server_id: str) -> None:
        """Restart a Mac, or switch it on if it was installed by an earlier start of the simulation."""
        if server_id in self._served:
            self.host(server_id).mac.reboot()
            return
        if not Mac.is_complete(self._root(server_id)):
            raise BadConfiguration(f"{self._root(server_id)} has no simulated Mac")
        await self._switch_on(server_id)

    def end(self) -> None:
        """Kill all processes of all Macs."""
        for host, _ in self._served.values():
            host.end()

    def _number(self, address: str) -> int:
        return int(IPv4Address(address)) - int(self._network[0])

    def _root(self, server_id: str) -> Path:
        """Return the folder of a Mac, by the number of its address: a later start of the simulation finds it."""
        return self._folder / f"mac-{self._number(self.address(server_id))}"

    async def _switch_on(
        self, server_id: str, settings: fresh_install.Settings | None = None
    ) -> SimulatedHost:
        host = SimulatedHost(
            self._root(server_id),
            listen=self.address(server_id),
            port=self.port,
            settings=settings,
            clock=self._clock,
        )
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._served[server_id] = host, self._tasks.start(_serve(host, started))
        await started
        return host


async def _serve(host: SimulatedHost, started: asyncio.Future[None]) -> None:
    """Serve a Mac until the task is cancelled; `started` has its result once it listens."""
    try:
        async with host:
            started.set_result(None)
            await asyncio.Event().wait()
    except (BadConfiguration, OSError) as error:
        if started.done():
            raise
        started.set_exception(error)
    finally:
        # After an unexpected error, the installation must end, too.
        started.cancel()


def free_port(count: int, network: IPv4Network = NETWORK) -> int:
    """Return a port that is free on the addresses of the first servers."""
    addresses = [str(network[1 + number]) for number in range(count + 1)]
    for _ in range(_PORT_ATTEMPTS):
        with ExitStack() as sockets, suppress(OSError):
            port = 0
            for address in addresses:
                trial = sockets.enter_context(socket.socket())
                trial.bind((address, port))
                port = int(trial.getsockname()[1])
            return port
    raise BadConfiguration("no port is free on the addresses of the servers; choose --ssh-port")
