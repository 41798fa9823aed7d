"""The process of `bramley apiserver`: data folder, certificates, tokens, API and TLS server, run and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from bramley.apiserver.admin import kubeconfigs
from bramley.apiserver.store import envelopes
from bramley.apiserver.pki import private_files
from bramley.apiserver.pki import tls
from bramley.apiserver.server.audit import Log
from bramley.apiserver.auth.signing import Keys
from bramley.apiserver.admin.backups import Backups
from bramley.apiserver.nodes import reaching
from bramley.apiserver.nodes.reaching import Nodes
from bramley.apiserver.apimachinery.settings import Settings as ApiSettings
from bramley.apiserver.store.store import Store
from bramley.apiserver.pki.tls import Certificates
from bramley.apiserver.auth.bearer_tokens import Tokens
from bramley.app import cluster, embedded
from bramley.app.connections import ConnectionBounds
from bramley.app.listening import Address, bind, bound_address
from bramley.app.serving import HttpsServer, Stop
from bramley.base import log
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret

logger = log.get(__name__)

_CLIENTS_FIRST = timedelta(milliseconds=100)
_CONTROLLERS = "bramley.apiserver.controllers.cluster"


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the server keeps its data, where it listens, and where it writes the way in."""

    data_dir: Path
    listen: Address
    kubeconfig: Path
    drain: timedelta = timedelta(seconds=10)
    certificates: tls.Settings = field(default_factory=tls.Settings)
    api: ApiSettings = field(default_factory=ApiSettings)
    cluster: cluster.Settings = field(default_factory=cluster.Settings)
    audit: Path | None = None
    # By whom the certificates of agents must be signed; without it they are not checked, as on a kube-apiserver.
    agents_authority: Path | None = None


def run(settings: Settings, *, started: Callable[[Address], None]) -> None:
    """Serve until a signal comes; `started` is called once clients can connect."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signalled(settings, started))


async def _until_signalled(settings: Settings, started: Callable[[Address], None]) -> None:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.ask)

    def ready(address: Address) -> None:
        begin_collecting()
        started(address)

    await serve(settings, stop=stop, started=ready, clock=SystemClock())


def begin_collecting() -> None:
    """Look for garbage from now on, but not among what start-up made: it lives as long as the process.

    Looking through that again and again would cost 15 ms of everybody's time.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


async def serve(
    settings: Settings, *, stop: Stop, started: Callable[[Address], None], clock: Clock
) -> None:
    """Serve until asked to stop; leave with everything durable and the folder free."""
    kubeconfigs.refuse_foreign(settings.kubeconfig)
    with contextlib.closing(bind(settings.listen)) as bound:
        address = bound_address(settings.listen, bound)
        async with (
            Store.open(settings.data_dir, clock=clock, flaw=envelopes.flaw) as store,
            _audited(settings, store, clock) as audit,
        ):
            private_files.check_place(settings.kubeconfig)
            tokens = Tokens.open(settings.data_dir)
            certificates = _certificates(settings, clock)
            token = kubeconfigs.admin_token(settings.kubeconfig, tokens)
            agents = _agents(settings, certificates, clock)
            api = _api(settings, store, tokens, clock=clock, audit=audit, agents=agents)
            await embedded.prepare(api, token)
            tell_way_in = partial(_write_kubeconfig, settings, address, certificates, token)
            tell_way_in()
            server = _https_server(settings, api, certificates, bound)
            process = _Process(settings, api, server, certificates, agents)
            await process.run(
                stop, clock=clock, started=partial(started, address), renewed=tell_way_in
            )
    logger.info("Stopped", revision=store.revision)


@dataclass(frozen=True, slots=True)
class _Process:
    """What runs side by side once everything is opened: the server, the controllers, the renewal of certificates."""

    settings: Settings
    api: embedded.Api
    server: HttpsServer
    certificates: Certificates
    agents: Nodes

    async def run(
        self,
        stop: Stop,
        *,
        clock: Clock,
        started: Callable[[], None],
        renewed: Callable[[], None],
    ) -> None:
        """Serve until asked to stop."""
        authority = self.certificates.authority.decode()
        beside = cluster.Cluster(
            self.api, clock, random.Random(), self.settings.cluster, authority=authority
        )
        ready = self.server.ready
        async with asyncio.TaskGroup() as group:
            others = (
                group.create_task(self.certificates.keep_fresh(renewed)),
                group.create_task(_tell(ready, started)),
                group.create_task(_run_controllers(beside, ready)),
            )
            await self.server.run(stop, end_streams=partial(self._end_streams, beside))
            for task in others:
                task.cancel()

    async def _end_streams(self, beside: cluster.Cluster) -> None:
        await _stop_controllers(beside)
        await self.agents.close()
        await self.api.store.close()


def _agents(settings: Settings, certificates: Certificates, clock: Clock) -> Nodes:
    """Return the ways to agents, to whom the API proves itself by its own authority."""

    def issue(name: str, lifetime: timedelta) -> tls.Identity:
        return certificates.issue(name, lifetime=lifetime)

    file = settings.agents_authority
    checked_by = _read_authority(file) if file is not None else None
    own = certificates.authority.decode()
    return reaching.nodes(
        issue, authority=checked_by or own, clock=clock, checked=checked_by is not None
    )


def _read_authority(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(
            f"{file} cannot be read ({error}); --kubelet-certificate-authority needs a PEM file"
        ) from error


def _api(
    settings: Settings,
    store: Store,
    tokens: Tokens,
    *,
    clock: Clock,
    audit: Log | None,
    agents: Nodes,
) -> embedded.Api:
    return embedded.build(
        store,
        tokens,
        clock=clock,
        chance=random.Random(),
        settings=replace(settings.api, cluster_admission=settings.cluster.enabled),
        keys=Keys.open(settings.data_dir, clock=clock),
        backups=Backups(
            store, folder=settings.data_dir, kubeconfig=settings.kubeconfig, clock=clock
        ),
        audit=audit,
        nodes=agents,
    )


def _https_server(
    settings: Settings, api: embedded.Api, certificates: Certificates, bound: socket.socket
) -> HttpsServer:
    return HttpsServer(
        api.application,
        bound=bound,
        context=certificates.context(),
        drain=settings.drain,
        bounds=ConnectionBounds(settings.api.connections, settings.api.head_deadline),
    )


def _write_kubeconfig(
    settings: Settings, address: Address, certificates: Certificates, token: Secret
) -> None:
    kubeconfigs.write(
        settings.kubeconfig,
        server=address.url,
        authority=certificates.authority,
        token=token,
    )


@contextlib.asynccontextmanager
async def _audited(settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Log | None]:
    """Keep the audit log, if one is wanted, until all that it has to tell is written."""
    if settings.audit is None:
        yield None
        return
    private_files.check_place(settings.audit)
    audit = Log(settings.audit, clock=clock)
    audit.begin(store.revision)
    try:
        yield audit
    finally:
        audit.close()


def _certificates(settings: Settings, clock: Clock) -> Certificates:
    certificates = Certificates(
        settings.data_dir,
        hosts=[settings.listen.host],
        settings=settings.certificates,
        clock=clock,
    )
    certificates.ensure()
    return certificates


async def _run_controllers(beside: cluster.Cluster, serving: asyncio.Event) -> None:
    if not beside.settings.enabled:
        beside.stopped.set()
        return
    # First the clients: loading the controllers takes a moment, in a thread so that nobody has to wait for it.
    await serving.wait()
    await asyncio.sleep(_CLIENTS_FIRST.total_seconds())
    await asyncio.to_thread(importlib.import_module, _CONTROLLERS)
    await beside.run()


async def _stop_controllers(beside: cluster.Cluster) -> None:
    beside.stop()
    try:
        async with asyncio.timeout(2 * beside.settings.drain.total_seconds()):
            await beside.stopped.wait()
    except TimeoutError:
        logger.warning("Controllers are cut off", reason="drain deadline passed")


async def _tell(ready: asyncio.Event, told: Callable[[], None]) -> None:
    await ready.wait()
    told()
