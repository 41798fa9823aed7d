"""The process of `bramley apiserver`: data folder, certificates, tokens, API and TLS server, run and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from bramley.apiserver import kubeconfigs, private_files, tls
from bramley.apiserver.audit import Log
from bramley.apiserver.auth.signing import Keys
from bramley.apiserver.backups import Backups
from bramley.apiserver.settings import Settings as ApiSettings
from bramley.apiserver.store.store import Store
from bramley.apiserver.tls import Certificates
from bramley.apiserver.tokens import Tokens
from bramley.app import cluster, embedded
from bramley.app.doors import Door
from bramley.app.listening import Address, bind, bound_address
from bramley.app.serving import HttpsServer, Stop
from bramley.base import log
from bramley.base.clock import Clock, SystemClock

logger = log.get(__name__)


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
        # What start-up made lives as long as the process; looking through it again costs 15 ms of everybody's time.
        gc.collect()
        gc.freeze()
        started(address)

    await serve(settings, stop=stop, started=ready, clock=SystemClock())


async def serve(
    settings: Settings, *, stop: Stop, started: Callable[[Address], None], clock: Clock
) -> None:
    """Serve until asked to stop; leave with everything durable and the folder free."""
    kubeconfigs.refuse_foreign(settings.kubeconfig)
    with contextlib.closing(bind(settings.listen)) as bound:
        address = bound_address(settings.listen, bound)
        async with (
            Store.open(settings.data_dir, clock=clock) as store,
            _audited(settings, store, clock) as audit,
        ):
            private_files.check_place(settings.kubeconfig)
            tokens = Tokens.open(settings.data_dir)
            certificates = _certificates(settings, clock)
            token = kubeconfigs.admin_token(settings.kubeconfig, tokens)
            api = embedded.build(
                store,
                tokens,
                clock=clock,
                chance=random.Random(),
                settings=replace(settings.api, cluster_admission=settings.cluster.enabled),
                keys=Keys.open(settings.data_dir),
                backups=Backups(
                    store,
                    folder=settings.data_dir,
                    kubeconfig=settings.kubeconfig,
                    clock=clock,
                ),
                audit=audit,
            )
            await embedded.prepare(api, token)

            def write_kubeconfig() -> None:
                kubeconfigs.write(
                    settings.kubeconfig,
                    server=address.url,
                    authority=certificates.authority,
                    token=token,
                )

            write_kubeconfig()
            server = HttpsServer(
                api.application,
                bound=bound,
                context=certificates.context(),
                drain=settings.drain,
                door=Door(settings.api.connections, settings.api.head_deadline),
            )
            beside = cluster.Cluster(
                api,
                clock,
                random.Random(),
                settings.cluster,
                authority=certificates.authority.decode(),
            )

            async def end_streams() -> None:
                await _stop_controllers(beside)
                await store.close()

            async with asyncio.TaskGroup() as group:
                freshness = group.create_task(certificates.keep_fresh(write_kubeconfig))
                telling = group.create_task(_tell(server.ready, lambda: started(address)))
                controllers = group.create_task(_run_controllers(beside, server.ready))
                await server.run(stop, end_streams=end_streams)
                for task in (freshness, telling, controllers):
                    task.cancel()
    logger.info("Stopped", revision=store.revision)


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
    # First the clients: importing and filling the controllers' caches takes a moment.
    await serving.wait()
    await asyncio.sleep(0)
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
