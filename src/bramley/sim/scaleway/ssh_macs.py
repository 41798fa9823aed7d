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
        template: fresh_install.Settings | None = None,
        on_install: Callable[[SimulatedHost], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.port = port
        self._folder = folder
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
        return self._addresses.setdefault(server_id, str(NETWORK[1 + len(self._addresses)]))

    def host(self, server_id: str) -> SimulatedHost:
        """Return the Mac of a server; LookupError if it is off."""
        return self._served[server_id][0]

    async def install(self, server_id: str, installation: Installation) -> None:
        """Erase the disk of a Mac, install it and serve it."""
        address, settings = self.address(server_id), installation.settings(self._template)
        # By the number of the server: a later start of the simulation finds the folders and installs them again.
        root = self._folder / f"mac-{int(IPv4Address(address)) - int(NETWORK[0])}"
        if Mac.is_complete(root):
            Mac(root, clock=self._clock).reinstall(settings)
        elif not Mac.can_be_created(root):
            raise BadConfiguration(
                f"{root} is not empty and not a simulated Mac; use another --root"
            )
        host = SimulatedHost(
            root,
            listen=address,
            port=self.port,
            settings=settings,
            clock=self._clock,
        )
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._served[server_id] = host, self._tasks.start(_serve(host, started))
        await started
        self._on_install(host)

    async def shut_down(self, server_id: str) -> None:
        """Kill all processes of a Mac and stop its SSH server."""
        if server_id in self._served:
            _, task = self._served.pop(server_id)
            task.cancel()
            await asyncio.wait({task})

    async def reboot(self, server_id: str) -> None:
        """Restart a Mac."""
        with suppress(KeyError):
            self.host(server_id).mac.reboot()


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


def free_port(count: int) -> int:
    """Return a port that is free on the addresses of the first servers."""
    addresses = [str(NETWORK[1 + number]) for number in range(count + 1)]
    for _ in range(_PORT_ATTEMPTS):
        with ExitStack() as sockets, suppress(OSError):
            port = 0
            for address in addresses:
                trial = sockets.enter_context(socket.socket())
                trial.bind((address, port))
                port = int(trial.getsockname()[1])
            return port
    raise BadConfiguration("no port is free on the addresses of the servers; choose --ssh-port")
