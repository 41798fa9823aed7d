"""Stand-ins for the agents on model Macs: what the API shows of an agent whose launchd job is loaded on its Mac.

Node and Lease are written by the agent's own controllers, with the token on that Mac's disk, which the agent's own code renews; so a
revoked identity stops the agent. VMs are modelled. A Mac that is reinstalled, rebooted or shut down loses its agent and its VMs at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.agent.agent_token import AgentToken, AgentTokenRenewal
from bramley.agent.host import Space
from bramley.agent.node import controller, lease
from bramley.agent.node.controller import NodeController
from bramley.agent.node.lease import LeaseController
from bramley.agent.node.status import Check, Facts
from bramley.agent.settings import Folders, NodeSettings
from bramley.api import taints
from bramley.api.core import Node
from bramley.api.names import finalizers, flags, host, launchd
from bramley.api.names.flags import Flag
from bramley.api.pod import Pod
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.kube import kubeconfig
from bramley.kube.client import Client
from bramley.kube.credentials import Credential, StaticCredentials
from bramley.kube.transport import Transport
from bramley.runtime.client import Selection
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics
from bramley.sim.fleet.images import HostImages, ImageModel
from bramley.sim.fleet.pod_writer import PodWriter
from bramley.sim.fleet.uplink import Uplink
from bramley.sim.fleet.vms import VmSettings
from bramley.sim.macos.mac import Mac
from bramley.sim.scaleway.macs import ModelMacs
from tests.credential_transport import CredentialTransport
from tests.scenarios.machines.mac_vms import MacVm, RunnerJobs, VmProcesses

BOOTS = ImageModel(size_bytes=1e9, poll_delay_seconds=1.0)
NEVER_READY = ImageModel(size_bytes=1e9, is_ready=False)
FAILS = ImageModel(size_bytes=1e9, exits_after=1.0)
_ENDED = frozenset({"Succeeded", "Failed"})


class Images(dict[str, ImageModel]):
    """How images behave; one that is not listed boots."""

    def get(self, image: str, default: Any = None) -> ImageModel:
        del default
        return super().get(image, BOOTS)


@dataclass(slots=True, kw_only=True)
class AgentSettings:
    """How the agents behave; it may be changed at any time."""

    images: Images = field(default_factory=Images)
    # Of a job, by the name of its Pod, and of all others.
    jobs: dict[str, float] = field(default_factory=dict)
    job_seconds: float = 600.0
    bytes_per_second: float = 1e8
    # `halt` is how long a VM takes to end when its Pod is deleted.
    vms: VmSettings = field(default_factory=VmSettings)
    lease: lease.Timings = field(default_factory=lease.Timings)
    status: controller.Timings = field(default_factory=controller.Timings)
    # How often the launchd jobs of the Macs are read, in seconds.
    every: float = 1.0

    def set_heartbeat(self, every: timedelta) -> None:
        """Renew Leases this often; everything else that the agents do regularly is stretched as much."""
        self.every = every.total_seconds() / 10
        self.lease = replace(self.lease, every=every, duration=4 * every)
        self.status = replace(self.status, every=3 * every)


@dataclass(slots=True, eq=False)
class Installation:
    """What an installation of a Mac has: its images, and the Pods whose VM was started in its present boot."""

    key: str
    images: HostImages
    processes: VmProcesses
    boot: str = ""
    started: set[str] = field(default_factory=set)

    def is_current(self, mac: Mac) -> bool:
        """Return whether a Mac still runs in the boot that was observed last."""
        state = mac.state
        return mac.is_up and (state["host_key_id"], state["boot"]["boot_id"]) == (
            self.key,
            self.boot,
        )

    def observe_boot(self, boot: str, processes: VmProcesses) -> None:
        """Forget the VMs of an earlier boot."""
        if boot != self.boot:
            self.boot, self.processes = boot, processes
            self.started = set()


class MacAgents:
    """The agents of all Macs; `run` until cancelled."""

    def __init__(
        self,
        macs: ModelMacs,
        connect: Callable[[Secret], Transport],
        *,
        clock: Clock,
        seed: int = 0,
        settings: AgentSettings | None = None,
    ) -> None:
        self.macs = macs
        self.settings = settings or AgentSettings()
        self.clock = clock
        self.seed = seed
        self.jobs = RunnerJobs(self._job_seconds)
        # What was changed on a Mac while VMs ran.
        self.disturbances: list[str] = []
        self.connect = connect
        self._installations: dict[str, Installation] = {}
        self._running: dict[str, tuple[_Process, MacAgent, asyncio.Task[None]]] = {}

    @property
    def nodes(self) -> set[str]:
        """Return the names of the Nodes whose agent runs."""
        return {agent.node.settings.name for _, agent, _ in self._running.values()}

    async def run(self) -> None:
        """Start and stop the agents as launchd does."""
        async with asyncio.TaskGroup() as group:
            while True:
                for server_id, mac in list(self.macs.installed.items()):
                    await self._observe(group, server_id, mac)
                await asyncio.sleep(self.settings.every)

    async def _observe(self, group: asyncio.TaskGroup, server_id: str, mac: Mac) -> None:
        process = _Process.of(mac)
        if server_id in self._running:
            before, agent, task = self._running[server_id]
            if before == process:
                agent.observe()
                return
            await agent.stop(task, are_vms_kept=agent.installation.is_current(mac))
            del self._running[server_id]
        self._lose_jobs(server_id, mac)
        token = _token(mac)
        if process is None or token is None:
            return
        agent = MacAgent(
            self,
            mac,
            self._installation(server_id, mac, process),
            token=token,
            settings=_node_settings(process.arguments, self.macs.address(server_id)),
        )
        self._running[server_id] = process, agent, group.create_task(agent.run())

    def _lose_jobs(self, server_id: str, mac: Mac) -> None:
        """End the jobs of VMs that ran without an agent when their Mac was rebooted or reinstalled."""
        installation = self._installations.get(server_id)
        if installation is not None and not installation.is_current(mac):
            self.jobs.lose(installation.started)
            installation.started = set()

    def _installation(self, server_id: str, mac: Mac, process: _Process) -> Installation:
        current = self._installations.get(server_id)
        processes = VmProcesses(mac, self.disturbances)
        if current is None or current.key != process.installation:
            images = HostImages(self.settings.images, Uplink(self.settings.bytes_per_second))
            current = Installation(process.installation, images, processes)
            self._installations[server_id] = current
        current.observe_boot(process.boot, processes)
        return current

    def _job_seconds(self, pod: Pod) -> float:
        return self.settings.jobs.get(pod.name, self.settings.job_seconds)


@dataclass(frozen=True, slots=True)
class _Process:
    """The process of an agent, and the boot and the installation that it runs in."""

    installation: str
    boot: str
    pid: int
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, mac: Mac) -> _Process | None:
        """Return the process of the agent's launchd job; None if the job is not loaded."""
        state = mac.state
        job = state["launchd"]["jobs"].get(launchd.in_system(launchd.AGENT))
        if job is None or "pid" not in job:
            return None
        boot = state["boot"]["boot_id"]
        return cls(state["host_key_id"], boot, job["pid"], tuple(job["arguments"]))


@dataclass(slots=True, eq=False)
class MacAgent:
    """One process of an agent."""

    agents: MacAgents
    mac: Mac
    installation: Installation
    _: KW_ONLY
    token: AgentToken
    settings: NodeSettings
    kube: Client = field(init=False)
    node: NodeController = field(init=False)
    vms: dict[str, MacVm] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.agents.seed}/{self.settings.name}")
        connection = CredentialTransport(self.agents.connect, self.token)
        self.kube = Client(connection, clock=self.agents.clock)
        self.node = NodeController(
            self.settings,
            self.kube,
            facts=self._facts,
            clock=self.agents.clock,
            rng=self._rng,
            timings=self.agents.settings.status,
        )

    async def run(self) -> None:
        """Run the agent until cancelled."""
        heartbeat = LeaseController(
            self.settings.name,
            self.kube,
            uid=lambda: self.node.uid,
            clock=self.agents.clock,
            rng=self._rng,
            timings=self.agents.settings.lease,
        )
        name = self.settings.name
        renewal = AgentTokenRenewal(
            self.token, self.kube, node=name, clock=self.agents.clock, rng=self._rng
        )
        metrics = RuntimeMetrics(CollectorRegistry())
        nodes = self._informer(Node, {"metadata.name": name}, metrics)
        nodes.on_change(self.node.on_change)
        pods = self._informer(Pod, {"spec.nodeName": name}, metrics)
        pods.on_change(self._on_pod)
        async with self._group as group:
            for part in (self.node, heartbeat, renewal, nodes, pods):
                group.create_task(part.run())

    async def stop(self, task: asyncio.Task[None], *, are_vms_kept: bool) -> None:
        """End the process; the VMs end with it unless they are kept for the next one."""
        if not are_vms_kept:
            self.installation.processes.forget()
        for vm in self.vms.values():
            vm.is_detached = are_vms_kept
        task.cancel()
        await asyncio.wait({task})

    def observe(self) -> None:
        """End the VMs whose processes were killed, and report a changed state of the Mac."""
        killed = self.installation.processes.check()
        for vm in self.vms.values():
            vm.end_if_killed(killed)

    def _informer(self, kind: Any, fields: Mapping[str, str], metrics: RuntimeMetrics) -> Any:
        return Informer(
            kind,
            self.kube,
            clock=self.agents.clock,
            rng=self._rng,
            metrics=metrics,
            selection=Selection.of(fields=fields),
        )

    def _facts(self) -> Facts:
        state, disk = self.mac.state, self.mac.state["disk"]
        has_tart = self.mac.files.is_executable(host.TART_BINARY)
        has_session = state["console"]["user"] == state["settings"]["user"]
        return Facts(
            tart=Check("" if has_tart else "tart is not installed"),
            session=Check("" if has_session else "the user has no session"),
            space=Space(disk["total_bytes"], disk["free_bytes"]),
            boot_id=state["boot"].get("boot_id", ""),
        )

    def _on_pod(self, _key: Key, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        vm = self.vms.get(pod.uid) if pod is not None else None
        if new is None:
            if vm is not None:
                self._tasks[vm.pod.uid].cancel()
        elif vm is not None:
            vm.observe(new)
        elif not _is_finished(new):
            self._start(new)

    def _start(self, pod: Pod) -> None:
        installation, settings = self.installation, self.agents.settings
        vm = self.vms[pod.uid] = MacVm(
            PodWriter(pod, self.kube),
            images=installation.images,
            clock=self.agents.clock,
            rng=random.Random(f"{self.agents.seed}/{pod.name}"),
            ip=f"192.168.64.{2 + len(installation.started) % 250}",
            host_ip=self.settings.address,
            guests=self.agents.jobs,
            settings=settings.vms,
            was_rebooted=pod.uid not in installation.started,
            processes=installation.processes,
            slots=self.settings.max_pods,
        )
        installation.started.add(pod.uid)
        installation.images.on_change = self._notify
        task = self._tasks[pod.uid] = self._group.create_task(vm.run())
        task.add_done_callback(lambda _: self._forget(pod.uid))

    def _notify(self) -> None:
        for vm in self.vms.values():
            vm.notify()

    def _forget(self, uid: str) -> None:
        self.vms.pop(uid, None)
        self._tasks.pop(uid, None)


def _is_finished(pod: Pod) -> bool:
    is_held = finalizers.VM_CLEANUP in pod.metadata.finalizers or pod.deleting
    return not is_held and pod.status.phase in _ENDED


def _token(mac: Mac) -> AgentToken | None:
    """Return the tokens on the disk of a Mac: that of the kubeconfig, and the renewed one."""
    content = mac.files.read(host.AGENT_KUBECONFIG)
    if content is None:
        return None
    token = kubeconfig.parse(Secret(content.decode()), "a kubeconfig").user.entry.token
    header = Secret(f"Bearer {token.reveal() if token else ''}")
    # The existing provider's agent has no folder for its state, and renews nothing.
    folder = mac.files.at(host.AGENT_STATE)
    return AgentToken(StaticCredentials(Credential(header)), Folders(state=folder).agent_token)


def _node_settings(arguments: tuple[str, ...], address: str) -> NodeSettings:
    values = dict(word.partition("=")[::2] for word in arguments)

    def value(flag: Flag) -> str:
        return values.get(flag.name, flag.default)

    labels, registered = value(flags.NODE_LABELS), value(flags.REGISTER_TAINTS)
    return NodeSettings(
        name=value(flags.NODE_NAME),
        provider_id=value(flags.PROVIDER_ID),
        address=address,
        labels=dict(pair.partition("=")[::2] for pair in labels.split(",") if pair),
        register_taints=taints.parse(registered.split(",")) if registered else (),
        cpu=int(value(flags.HOST_CPU)),
        memory_mb=int(value(flags.HOST_MEMORY_MB)),
        max_pods=int(value(flags.MAX_PODS)),
    )
