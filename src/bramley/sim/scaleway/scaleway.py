"""The simulated Scaleway: one organisation with its servers, SSH keys and private networks.

All state is in memory; `on_change` is called before a client learns of a change, so that it can be saved. What takes time, such as a
reinstallation, is a task, so it works only inside `running`.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from bramley.api.names import machines
from bramley.base import log
from bramley.base.clock import Clock
from bramley.base.errors import BramleyError
from bramley.sim.scaleway import catalog, refusals
from bramley.sim.scaleway.access import Access, ApiKey
from bramley.sim.scaleway.catalog import Os
from bramley.sim.scaleway.faults import Faults
from bramley.sim.scaleway.macs import Installation, MacHosts
from bramley.sim.scaleway.records import (
    USER,
    Attachment,
    PrivateNetwork,
    Seal,
    Server,
    SshKey,
    Status,
)
from bramley.sim.scaleway.saved_state import SavedState
from bramley.sim.scaleway.tasks import Tasks

logger = log.get(__name__)

PROJECT = "11111111-1111-4111-8111-111111111111"
ORGANISATION = "22222222-2222-4222-8222-222222222222"
# Clients check its form, and the server does not need it.
ACCESS_KEY = "SCWSIMULATED00000000"
SECRET_KEY = "33333333-3333-4333-8333-333333333333"  # noqa: S105 - of the simulation
MINIMUM_LEASE = timedelta(hours=24)
POOL_NAME = f"{machines.POOL_PREFIX}{{}}"
# Some of them must be percent-encoded in a URL.
_PASSWORD_CHARACTERS = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789@:/%#+"  # noqa: S105 - an alphabet
_PASSWORD_LENGTH = 14
_DELETION_RETRY = timedelta(minutes=1)
_ATTACHING = timedelta(seconds=20)
_FIRST_VLAN = 1000
Range = tuple[timedelta, timedelta]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The account, its limits, and how long everything takes."""

    project_id: str = PROJECT
    organization_id: str = ORGANISATION
    secret_key: str = field(default=SECRET_KEY, repr=False)
    seed: int = 0
    # Of each key; 0 is no limit.
    requests_per_minute: int = 1000
    max_servers: int = 1000
    ordering: Range = (timedelta(minutes=3), timedelta(minutes=5))
    # An image that is not the default one is installed after the delivery.
    ordering_other_os: Range = (timedelta(minutes=20), timedelta(minutes=40))
    rebooting: Range = (timedelta(minutes=1), timedelta(minutes=3))
    reinstalling: Range = (timedelta(minutes=5), timedelta(minutes=15))
    # For how long a list, or the call for one server, still shows the name before a rename.
    list_shows_old_name: timedelta = timedelta(seconds=3)
    get_shows_old_name: timedelta = timedelta()
    # How long after an installation the password is sealed; None is never.
    seals_after: timedelta | None = None
    # Types that are out of stock.
    out_of_stock: frozenset[str] = frozenset()


class SimulatedScaleway:
    """One organisation with a key of one project; more keys may be added to `access.keys`."""

    def __init__(
        self,
        macs: MacHosts,
        *,
        clock: Clock,
        settings: Settings | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings = settings or Settings()
        # Called after each change of a record.
        self.changed = on_change
        self.clock = clock
        self.macs = macs
        self.faults = Faults()
        key = ApiKey(settings.secret_key, settings.project_id)
        self.access = Access(clock, settings.requests_per_minute, [key])
        # In the order of their creation.
        self.servers: dict[str, Server] = {}
        self.ssh_keys: dict[str, SshKey] = {}
        self.private_networks: dict[str, PrivateNetwork] = {}
        # By server and private network.
        self.attachments: dict[tuple[str, str], Attachment] = {}
        # Requests by method and path template.
        self.calls: Counter[str] = Counter()
        self._rng = random.Random(f"scaleway/{settings.seed}")
        self._tasks = Tasks()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Carry out what takes time while the context lasts."""
        return self._tasks.running()

    def new_id(self) -> str:
        """Return a new id."""
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def saved_state(self) -> SavedState:
        """Return all records."""
        return SavedState(
            servers=[*self.servers.values()],
            ssh_keys=[*self.ssh_keys.values()],
            private_networks=[*self.private_networks.values()],
        )

    async def restore(self, saved: SavedState) -> None:
        """Go on from a saved state: Macs are restarted, and installations that were interrupted are carried out."""
        self.ssh_keys = {each.id: each for each in saved.ssh_keys}
        self.private_networks = {each.id: each for each in saved.private_networks}
        self.servers = {each.id: each for each in saved.servers}
        for server in saved.servers:
            if server.is_deletion_scheduled:
                self._tasks.start(self._delete_when_due(server))
            is_installed = server.status in (Status.READY, Status.REBOOTING)
            try:
                if is_installed:
                    await self.macs.reboot(server.id)
            except (BramleyError, OSError) as error:
                logger.warning("Server not started", server=server.id, reason=str(error))
                is_installed = False
            if is_installed:
                self._change(server, Status.READY)
            else:
                server.status = Status.REINSTALLING
                self._tasks.start(self._install(server, delay=timedelta()))

    async def add_servers(
        self,
        names: Iterable[str],
        *,
        type: str = catalog.DEFAULT_TYPE,
        zone: str = catalog.ZONES[0],
        is_builder: bool = False,
    ) -> list[Server]:
        """Add servers that are delivered and ready, as if they had just been ordered: the minimum lease begins now."""
        ordered_at = self.clock.now()
        added = [
            self._record(
                name,
                type=type,
                zone=zone,
                project_id=self.settings.project_id,
                created_at=ordered_at,
            )
            for name in names
        ]
        for server in added:
            server.is_builder = is_builder
        self.changed()
        async with asyncio.TaskGroup() as group:
            for server in added:
                group.create_task(self._install(server, delay=timedelta()))
        return added

    def create_server(
        self, name: str, *, type: str, zone: str, project_id: str, image: Os | None
    ) -> Server:
        """Order a server; it is delivered later."""
        if type in self.settings.out_of_stock:
            raise refusals.out_of_stock(type)
        if len(self.servers) >= self.settings.max_servers:
            raise refusals.quota_exceeded("apple_silicon_servers", self.settings.max_servers)
        now = self.clock.now()
        server = self._record(name, type=type, zone=zone, project_id=project_id, created_at=now)
        server.os = image or catalog.DEFAULT_OS
        is_fast = server.os is catalog.DEFAULT_OS
        duration = self.settings.ordering if is_fast else self.settings.ordering_other_os
        self._tasks.start(self._install(server, delay=self._drawn(duration)))
        return server

    def rename(self, server: Server, name: str) -> None:
        """Rename a server, whatever its name and its state are."""
        # What a list or a get can still show, and the name before it.
        server.names = [*server.names[-9:], (self.clock.now(), name)]
        self._touch(server)

    def schedule_deletion(self, server: Server, *, is_scheduled: bool) -> None:
        """Delete a server at the end of its minimum lease, or do not."""
        starts = is_scheduled and not server.is_deletion_scheduled
        server.is_deletion_scheduled = is_scheduled
        self._touch(server)
        if starts:
            self._tasks.start(self._delete_when_due(server))

    def enable_vpc(self, server: Server, *, is_enabled: bool) -> None:
        """Turn private networks of a server on or off."""
        server.has_vpc = is_enabled
        self._touch(server)

    def attach(self, server: Server, network: PrivateNetwork) -> Attachment:
        """Add a server to a private network; it carries no traffic."""
        if not server.has_vpc:
            raise refusals.vpc_disabled()
        now, place = self.clock.now(), (server.id, network.id)
        if place not in self.attachments:
            self.attachments[place] = Attachment(
                id=self.new_id(),
                server_id=server.id,
                private_network_id=network.id,
                project_id=network.project_id,
                organization_id=network.organization_id,
                vlan=_FIRST_VLAN + len(self.attachments),
                created_at=now,
                attached_at=now + _ATTACHING,
            )
        return self.attachments[place]

    def delete_server(self, server: Server) -> None:
        """Delete a server for good, after its minimum lease."""
        if self.clock.now() < server.deletable_at:
            raise refusals.before_minimum_lease(server.deletable_at)
        self._require_stable(server)
        del self.servers[server.id]
        self.changed()
        self._tasks.start(self.macs.shut_down(server.id))

    def reboot(self, server: Server) -> None:
        """Reboot a server."""
        self._require_stable(server)
        duration = self._drawn(self.settings.rebooting)
        self._tasks.start(self._reboot(server, duration, before=server.status))
        self._change(server, Status.REBOOTING)

    def reinstall(self, server: Server, image: Os | None) -> None:
        """Erase a server and install macOS again, with the SSH keys that the project has by then."""
        self._require_stable(server)
        server.os = image or catalog.DEFAULT_OS
        self._change(server, Status.REINSTALLING)
        self._tasks.start(self._install(server, delay=self._drawn(self.settings.reinstalling)))

    def seal(self, server: Server, seal: Seal) -> None:
        """Hide the password of a server from now on, until its next installation."""
        server.seal, server.sealed_at = seal, self.clock.now()
        self.changed()

    def shown(self, server: Server, *, stale: timedelta = timedelta()) -> dict[str, Any]:
        """Return a server as Scaleway shows it, with its name of some time ago."""
        now = self.clock.now()
        return server.json(server.name_at(now - stale), now)

    def _record(
        self, name: str, *, type: str, zone: str, project_id: str, created_at: datetime
    ) -> Server:
        id = self.new_id()
        server = Server(
            id=id,
            type=type,
            zone=zone,
            project_id=project_id,
            organization_id=self.settings.organization_id,
            ip=self.macs.address(id),
            os=catalog.DEFAULT_OS,
            created_at=created_at,
            updated_at=created_at,
            deletable_at=created_at + MINIMUM_LEASE,
            names=[(created_at, name)],
        )
        self.servers[id] = server
        self.changed()
        return server

    async def _install(self, server: Server, *, delay: timedelta) -> None:
        """Switch the Mac off, install it after a delay, and deliver it."""
        try:
            await self.macs.shut_down(server.id)
            await asyncio.sleep(delay.total_seconds())
            server.password = self._new_password()
            await self.macs.install(server.id, self._installation(server))
        except (BramleyError, OSError) as error:
            logger.warning("Installation of a server failed", server=server.id, reason=str(error))
            self._change(server, Status.ERROR)
            return
        after = self.settings.seals_after
        server.seal, server.sealed_at = None, None if after is None else self.clock.now() + after
        server.is_delivered = True
        self._change(server, Status.READY)

    def _installation(self, server: Server) -> Installation:
        keys = (each for each in self.ssh_keys.values() if each.project_id == server.project_id)
        return Installation(
            type=server.type,
            macos=server.os.macos,
            user=USER,
            password=server.password,
            authorized_keys=tuple(each.public_key for each in keys),
            host_name=f"mac-{server.id[:8]}",
            is_builder=server.is_builder,
        )

    async def _reboot(self, server: Server, duration: timedelta, *, before: Status) -> None:
        # A Mac that could not be installed stays off.
        if before is Status.READY:
            await self.macs.reboot(server.id)
        await asyncio.sleep(duration.total_seconds())
        self._change(server, before)

    async def _delete_when_due(self, server: Server) -> None:
        left = server.deletable_at - self.clock.now()
        await asyncio.sleep(max(left.total_seconds(), 0))
        while server.status.is_transient:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(_DELETION_RETRY.total_seconds())
        if server.is_deletion_scheduled and server.id in self.servers:
            del self.servers[server.id]
            self.changed()
            await self.macs.shut_down(server.id)

    def _require_stable(self, server: Server) -> None:
        if server.status.is_transient:
            raise refusals.transient_state("server", server.id, server.status)

    def _change(self, server: Server, status: Status) -> None:
        server.status = status
        self._touch(server)

    def _touch(self, server: Server) -> None:
        server.updated_at = self.clock.now()
        self.changed()

    def _drawn(self, range: Range) -> timedelta:
        least, most = (each.total_seconds() for each in range)
        return timedelta(seconds=self._rng.uniform(least, most))

    def _new_password(self) -> str:
        return "".join(self._rng.choices(_PASSWORD_CHARACTERS, k=_PASSWORD_LENGTH))
