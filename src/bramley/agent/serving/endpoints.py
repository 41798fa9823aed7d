"""The composition of the kubelet endpoints of one agent: the server and the sources of logs and stats."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from bramley.agent.crash_recovery import restart_on_crash
from bramley.agent.guest.folders import UserData
from bramley.agent.host import Host
from bramley.agent.ledger import Ledger
from bramley.agent.programs import Programs
from bramley.agent.serving import server
from bramley.agent.serving.pod_logs import PodLogs
from bramley.agent.serving.stats import StatsProvider
from bramley.agent.settings import Serving, Settings
from bramley.api.core import Pod
from bramley.base.clock import Clock
from bramley.kube.client import Client

FindPod = Callable[[str, str], "Pod | None"]


class Endpoints:
    """The kubelet endpoints of one agent; `server.port` is valid once `server.ready` is set.

    `pods` finds a Pod of this Node by namespace and name.
    """

    def __init__(
        self,
        settings: Settings,
        serving: Serving,
        *,
        kube: Client,
        programs: Programs,
        host: Host,
        ledger: Ledger,
        pods: FindPod,
        clock: Clock,
    ) -> None:
        node, folders = settings.node, settings.folders
        self._logs = PodLogs(folders.vm_logs, UserData(folders.user_data), pods, ledger.vms, clock)
        home = folders.tart_home.expanduser()

        def process(vm: str) -> int | None:
            try:
                return host.lock_holder(home / "vms" / vm / "config.json")
            except OSError:
                return None

        self._stats = StatsProvider(node.name, host, ledger.vms, process, pods, clock, disk=home)
        self.server = server.Server(
            _settings(settings, serving),
            kube=kube,
            logs=self._logs,
            stats=self._stats,
            programs=programs,
            clock=clock,
        )

    def runnables(self) -> Iterator[Coroutine[Any, Any, object]]:
        """Yield the coroutines that run concurrently until cancelled."""
        yield restart_on_crash("logs", self._logs.run)
        yield restart_on_crash("stats", self._stats.run)
        yield self.server.run()


def _settings(settings: Settings, serving: Serving) -> server.Settings:
    hosts = (settings.node.name, settings.node.address, serving.endpoint.host)
    return server.Settings(
        node=settings.node.name,
        host=serving.endpoint.host,
        port=serving.endpoint.port,
        folder=settings.folders.state / "serving",
        names=tuple(dict.fromkeys(host for host in hosts if host)),
        certificate=serving.certificate,
        key=serving.key,
        client_authority=serving.client_authority,
    )
