"""The simulated Macs of `bramley up`: each is a folder with its own simulated tart and a real agent process that uses it.

Agents that exit are restarted, as launchd would. Processes that a killed `bramley up` left running are ended by the next one;
nothing else on this machine is touched. The Macs know the images of `sample_images`, whose guests boot quickly, work for a while
and stop; a Pod chooses other behaviour by variables such as `BRAMLEY_SIM_WORK` and `BRAMLEY_SIM_CODE`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from bramley.access import identity, kubeconfig
from bramley.api import conditions
from bramley.api.core import Node, Pod
from bramley.api.names import agent, finalizers, flags, labels
from bramley.api.names import conditions as names
from bramley.apiserver.pki import private_files
from bramley.app import sample_images
from bramley.app.up import MacFailed, MacReady, MacSettings, Progress
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig
from bramley.kube.http import HttpTransport
from bramley.sim.mac.folder import MacFolder

logger = log.get(__name__)

# Each start issues a new token.
TOKEN_LIFETIME = timedelta(days=30)
# Reachable from this machine only, each agent on its own port.
_ADDRESS = "127.0.0.1"
_ANY_PORT = "127.0.0.1:0"
_POLL_INTERVAL = timedelta(milliseconds=200)
# The throttle interval of launchd.
_RESTART_DELAY = timedelta(seconds=10)
_SUPERVISOR_TIMEOUT = timedelta(seconds=2)
_LOG_EXCERPT_CHARACTERS = 300
_MAX_LOG_BYTES = 5_000_000


class Macs:
    """The simulated Macs of one server; `run` until `stop`."""

    def __init__(self, settings: MacSettings, kubeconfig: Path, *, clock: Clock) -> None:
        self._settings = settings
        self._macs = [MacFolder(settings.folder / name) for name in settings.names]
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    def kill(self) -> None:
        """Kill every process of every Mac."""
        _signal(signal.SIGKILL, self._macs, MacFolder.processes)

    async def run(self, on_progress: Callable[[Progress], None]) -> None:
        """Start the Macs, keep their agents running until `stop`, and end them with their VMs."""
        # Without duplicates: an agent that gets SIGTERM twice stops without draining.
        every_mac = list(dict.fromkeys([*self._macs, *mac_folders(self._settings.folder)]))
        await end(every_mac, self._settings.stop_timeout)
        try:
            access = config_loader.load(self._kubeconfig)
            async with Client(HttpTransport(access), clock=self._clock) as kube:
                await self._run(kube, access, on_progress)
        finally:
            await end(every_mac, self._settings.stop_timeout)

    async def _run(
        self, kube: Client, access: ClientConfig, on_progress: Callable[[Progress], None]
    ) -> None:
        await retire_surplus(kube, self._settings)
        agents = [_AgentProcess(mac, kube, self._clock, on_progress) for mac in self._macs]
        async with asyncio.TaskGroup() as group:
            within = self._settings.start_timeout
            tasks = [group.create_task(agent.run(access, within)) for agent in agents]
            await self._stopping.wait()
            for task in tasks:
                task.cancel()


@dataclass(frozen=True, slots=True)
class _AgentProcess:
    """The agent of one Mac, restarted whenever it exits."""

    mac: MacFolder
    kube: Client
    clock: Clock
    on_progress: Callable[[Progress], None]

    async def run(self, access: ClientConfig, within: timedelta) -> None:
        """Lay out the Mac, start its agent, report how it started, and restart it whenever it exits."""
        try:
            self.mac.lay_out(sample_images.SIMULATED_TART)
            await _write_credentials(self.kube, access, self.mac)
            process = await self._start()
        except (errors.BramleyError, OSError) as error:
            self.on_progress(MacFailed(self.mac.name, str(error)))
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_start(process, within))
            while True:
                code = await process.wait()
                logger.warning(
                    "Agent exited; restarting it",
                    mac=self.mac.name,
                    code=code,
                    log=str(self.mac.log),
                )
                await asyncio.sleep(_RESTART_DELAY.total_seconds())
                process = await self._start()

    async def _start(self) -> asyncio.subprocess.Process:
        _rotate(self.mac.log)
        with self.mac.log.open("ab") as out:
            # Its own session: Ctrl-C reaches this process only, which then stops the agents in order.
            return await asyncio.create_subprocess_exec(
                *agent_command(self.mac),
                env=self.mac.environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    async def _report_start(self, process: asyncio.subprocess.Process, within: timedelta) -> None:
        begun, since = self.clock.monotonic(), self.clock.now().replace(microsecond=0)
        while process.returncode is None:
            elapsed = timedelta(seconds=self.clock.monotonic() - begun)
            if await is_ready(self.kube, self.mac.name, since):
                self.on_progress(MacReady(self.mac.name, elapsed))
                return
            if elapsed > within:
                self._fail(f"its Node is not Ready after {within.total_seconds():g} s")
                return
            await asyncio.sleep(_POLL_INTERVAL.total_seconds())
        self._fail(f"its agent exited with code {process.returncode}")

    def _fail(self, reason: str) -> None:
        self.on_progress(MacFailed(self.mac.name, f"{reason}; {_log_excerpt(self.mac.log)}"))


def agent_command(mac: MacFolder) -> list[str]:
    """Return the command line of a Mac's agent."""
    values = {
        flags.NODE_NAME: mac.name,
        flags.NODE_IP: _ADDRESS,
        flags.KUBECONFIG: mac.kubeconfig,
        flags.CLIENT_CA_FILE: mac.authority,
        flags.TART_BINARY: mac.programs / "tart",
        flags.TART_HOME: mac.folders.tart_home,
        flags.STATE_DIR: mac.folders.state,
        flags.USERDATA_DIR: mac.folders.user_data,
        flags.VM_LOG_DIR: mac.folders.vm_logs,
        flags.DHCP_LEASES_FILE: mac.folders.dhcp_leases,
        flags.NODE_LABELS: f"{labels.FLEET}={sample_images.FLEET}",
        flags.GUI_PREFLIGHT: "on",
        flags.KUBELET_BIND_ADDRESS: _ANY_PORT,
        flags.METRICS_BIND_ADDRESS: _ANY_PORT,
        flags.HEALTH_PROBE_BIND_ADDRESS: _ANY_PORT,
    }
    words = [word for flag, value in values.items() for word in (flag.name, str(value))]
    # -P: nothing is imported from the current folder.
    return [sys.executable, "-P", "-m", agent.MODULE, *words]


async def is_ready(kube: Client, name: str, since: datetime) -> bool:
    """Return whether a Node is Ready by a heartbeat of this start, not of an earlier one."""
    try:
        node = await kube.get(Node, name)
    except (errors.NotFound, errors.Unavailable):
        return False
    ready = conditions.find(node.status.conditions, names.READY)
    heartbeat = ready and ready.last_heartbeat_time
    return bool(ready and ready.status == "True" and heartbeat and heartbeat >= since)


async def _write_credentials(kube: Client, access: ClientConfig, mac: MacFolder) -> None:
    issued = await identity.create(kube, mac.name, expires=TOKEN_LIFETIME)
    server = kubeconfig.server_for_agent(access, None)
    content = kubeconfig.render(mac.name, issued.token, server=server, trust=access.trust)
    private_files.write(mac.kubeconfig, content.reveal().encode())
    # The agent verifies the client certificate of the server by this authority when it serves logs and stats.
    private_files.write(mac.authority, (access.trust.authorities or "").encode())


def mac_folders(folder: Path) -> list[MacFolder]:
    """Return the Macs of this and of earlier starts below a folder."""
    return [MacFolder(root) for root in sorted(folder.glob("mac-*"))]


async def retire_surplus(kube: Client, settings: MacSettings) -> None:
    """Remove surplus Macs of earlier starts from the cluster, each once; their files stay."""
    settings.clear_retired_marks()
    for name in settings.surplus:
        await retire(kube, name)
        settings.mark_retired(name)


async def retire(kube: Client, name: str) -> None:
    """Remove a Mac from the cluster: its identity, its Pods with the finalizer of its agent, and its Node."""
    # First: an agent that still runs must not register the Node again.
    await identity.revoke(kube, name)
    for pod in (await kube.list(Pod, fields=f"spec.nodeName={name}")).items:
        with contextlib.suppress(errors.NotFound):
            await _delete_pod(kube, pod)
    with contextlib.suppress(errors.NotFound):
        await kube.delete(Node, name)


async def _delete_pod(kube: Client, pod: Pod) -> None:
    others = [each for each in pod.metadata.finalizers if each != finalizers.VM_CLEANUP]
    change = {"metadata": {"finalizers": others}}
    # Before the deletion: no agent is left that would remove the finalizer.
    await kube.merge_patch(Pod, pod.name, change, namespace=pod.namespace, uid=pod.uid)
    await kube.delete(Pod, pod.name, namespace=pod.namespace, uid=pod.uid, grace=timedelta())


async def end(macs: list[MacFolder], within: timedelta) -> None:
    """End the agents, then their VMs, then all other processes of these Macs, also those of an earlier start."""
    await _send(signal.SIGTERM, macs, MacFolder.agents, within)
    # VMs before supervisors: a supervisor records how its VM ended, and exits.
    await _send(signal.SIGKILL, macs, MacFolder.vms, _SUPERVISOR_TIMEOUT)
    await _send(signal.SIGKILL, macs, MacFolder.processes, within)


async def _send(
    number: signal.Signals,
    macs: list[MacFolder],
    pids: Callable[[MacFolder], list[int]],
    within: timedelta,
) -> None:
    """Send a signal to processes of Macs and wait until they have exited or the time has passed."""
    _signal(number, macs, pids)
    deadline = asyncio.get_running_loop().time() + within.total_seconds()
    while any(pids(mac) for mac in macs) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(_POLL_INTERVAL.total_seconds())


def _signal(
    number: signal.Signals, macs: list[MacFolder], pids: Callable[[MacFolder], list[int]]
) -> None:
    for pid in [pid for mac in macs for pid in pids(mac)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _rotate(log_file: Path) -> None:
    if log_file.exists() and log_file.stat().st_size > _MAX_LOG_BYTES:
        log_file.replace(log_file.with_name(f"{log_file.name}.1"))


def _log_excerpt(log_file: Path) -> str:
    lines = log_file.read_text(errors="replace").splitlines() if log_file.exists() else []
    excerpt = f": {lines[-1][:_LOG_EXCERPT_CHARACTERS]}" if lines else ""
    return f"see {log_file}{excerpt}"
