"""The process of `bramley apiserver`: data folder, certificates, tokens, embedded cluster and HTTPS server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bramley.apiserver.admin import kubeconfigs
from bramley.apiserver.admin.backups import Backups
from bramley.apiserver.apimachinery.settings import Settings as ApiSettings
from bramley.apiserver.auth.bearer_tokens import Tokens
from bramley.apiserver.auth.signing_keys import SigningKeys
from bramley.apiserver.nodes import usage
from bramley.apiserver.nodes.usage import Kubelets
from bramley.apiserver.pki import private_files, tls
from bramley.apiserver.pki.tls import Certificates
from bramley.apiserver.server.audit import AuditLog
from bramley.apiserver.store import damage
from bramley.apiserver.store.store import Store
from bramley.app import embedded
from bramley.app.https_server import ConnectionBounds, HttpsServer, Stop
from bramley.app.listen_address import Address, bind, bound_address
from bramley.base import log
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret

logger = log.get(__name__)

_CONTROLLERS_START_DELAY = timedelta(milliseconds=100)
_CONTROLLERS = "bramley.apiserver.controllers.cluster"
_CLUSTER_API = "bramley.app.cluster_api"


@dataclass(frozen=True, slots=True)
class Settings:
    """The data folder of the server, its listening address, and the file for the administrator's kubeconfig."""

    data_dir: Path
    listen: Address
    kubeconfig: Path
    drain: timedelta = timedelta(seconds=10)
    certificates: tls.Settings = field(default_factory=tls.Settings)
    api: ApiSettings = field(default_factory=ApiSettings)
    controllers: embedded.ControllerSettings = field(default_factory=embedded.ControllerSettings)
    audit: Path | None = None
    # The authority of the agents' serving certificates; without it they are not verified, as with kube-apiserver.
    kubelet_authority: Path | None = None


def run(settings: Settings, *, on_serving: Callable[[Address], None]) -> None:
    """Serve until a signal arrives; `on_serving` is called as soon as clients can connect."""

    def started(address: Address) -> None:
        start_garbage_collector()
        on_serving(address)

    run_until_signalled(
        lambda stop: serve(settings, stop=stop, on_serving=started, clock=SystemClock())
    )


def start_garbage_collector() -> None:
    """Enable the collector, which the command line disabled, for everything but the objects of the start-up.

    Those live as long as the process; frozen, they are not scanned again, which would stop the event loop for 15 ms each time.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def run_until_signalled(process: Callable[[Stop], Coroutine[Any, Any, None]]) -> None:
    """Run the main coroutine of a process; SIGINT and SIGTERM request its stop."""
    import uvloop

    async def main() -> None:
        stop = Stop()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.request)
        await process(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def serve(
    settings: Settings, *, stop: Stop, on_serving: Callable[[Address], None], clock: Clock
) -> None:
    """Serve until a stop is requested; return when all data is durable and the folder is unlocked."""
    # First: a refusal must not leave a data folder behind.
    kubeconfigs.refuse_foreign(settings.kubeconfig)
    # Before the store: an address in use is reported without touching the data.
    with contextlib.closing(bind(settings.listen)) as bound:
        address = bound_address(settings.listen, bound)
        check = damage.check_envelope
        opened = Store.open(settings.data_dir, clock=clock, check_record=check)
        async with opened as store, _audit_log(settings, store, clock) as audit:
            private_files.check_writable(settings.kubeconfig)
            tokens = Tokens.open(settings.data_dir)
            certificates = _certificates(settings, clock)
            token = kubeconfigs.admin_token(settings.kubeconfig, tokens)
            nodes = _nodes(settings, certificates, clock)
            cluster = _cluster(
                settings,
                store,
                tokens,
                certificates=certificates,
                nodes=nodes,
                audit=audit,
                clock=clock,
            )
            await embedded.prepare(cluster.api, token)
            write_kubeconfig = partial(_write_kubeconfig, settings, address, certificates, token)
            write_kubeconfig()
            server = _https_server(settings, cluster, certificates, bound)
            async with asyncio.TaskGroup() as group:
                tasks = (
                    group.create_task(certificates.run_renewal(write_kubeconfig)),
                    group.create_task(_call_when_ready(server, partial(on_serving, address))),
                    group.create_task(_run_controllers(cluster.controllers, server.ready)),
                )
                await server.run(stop, end_streams=partial(_end_streams, cluster, nodes))
                for task in tasks:
                    task.cancel()
    logger.info("Stopped server", revision=store.revision)


async def _end_streams(cluster: embedded.Cluster, nodes: Kubelets) -> None:
    # In this order: the controllers still write while they stop, so the store closes last.
    await _stop_controllers(cluster.controllers)
    await nodes.close()
    await cluster.api.store.close()


async def _call_when_ready(server: HttpsServer, on_serving: Callable[[], None]) -> None:
    await server.ready.wait()
    on_serving()


def _cluster(
    settings: Settings,
    store: Store,
    tokens: Tokens,
    *,
    certificates: Certificates,
    nodes: Kubelets,
    audit: AuditLog | None,
    clock: Clock,
) -> embedded.Cluster:
    backups = Backups(store, folder=settings.data_dir, kubeconfig=settings.kubeconfig, clock=clock)
    return embedded.build(
        store,
        tokens,
        clock=clock,
        rng=random.Random(),
        settings=replace(settings.api, cluster_admission=settings.controllers.enabled),
        controllers=settings.controllers,
        authority=certificates.authority.decode(),
        keys=SigningKeys.open(settings.data_dir, clock=clock),
        backups=backups,
        audit=audit,
        nodes=nodes,
    )


def _https_server(
    settings: Settings, cluster: embedded.Cluster, certificates: Certificates, bound: socket.socket
) -> HttpsServer:
    return HttpsServer(
        cluster.api.application,
        bound=bound,
        context=certificates.context(),
        drain=settings.drain,
        bounds=ConnectionBounds(settings.api.connections, settings.api.head_deadline),
    )


def _nodes(settings: Settings, certificates: Certificates, clock: Clock) -> Kubelets:
    """Return the client of the agents' endpoints; it authenticates with certificates of the server's own authority."""

    def issue(name: str, lifetime: timedelta) -> tls.Identity:
        return certificates.issue(name, lifetime=lifetime)

    file = settings.kubelet_authority
    checked_by = _read_authority(file) if file is not None else None
    own_authority = certificates.authority.decode()
    return usage.kubelets(
        issue, authority=checked_by or own_authority, clock=clock, checked=checked_by is not None
    )


def _read_authority(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(
            f"{file} cannot be read ({error}); --kubelet-certificate-authority needs a PEM file"
        ) from error


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
async def _audit_log(
    settings: Settings, store: Store, clock: Clock
) -> AsyncIterator[AuditLog | None]:
    """Open the audit log, if there is one; when the context ends, every entry is written."""
    if settings.audit is None:
        yield None
        return
    private_files.check_writable(settings.audit)
    audit = AuditLog(settings.audit, clock=clock)
    audit.record_start(store.revision)
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


async def _run_controllers(controllers: embedded.Controllers, serving: asyncio.Event) -> None:
    if not controllers.settings.enabled:
        controllers.stopped.set()
        return
    # Clients first: importing the controllers takes a while, and happens in a thread so that requests are served meanwhile.
    await serving.wait()
    await asyncio.sleep(_CONTROLLERS_START_DELAY.total_seconds())
    for module in (_CONTROLLERS, *((_CLUSTER_API,) if controllers.settings.cluster_api else ())):
        await asyncio.to_thread(importlib.import_module, module)
    await controllers.run()


async def _stop_controllers(controllers: embedded.Controllers) -> None:
    controllers.stop()
    try:
        async with asyncio.timeout(2 * controllers.settings.drain.total_seconds()):
            await controllers.stopped.wait()
    except TimeoutError:
        logger.warning("Cancelling controllers", reason="drain deadline passed")
