"""The simulated Macs of `bramley up`: each a folder with a tart of its own, and a real agent process that finds only that.

What a killed `bramley up` left running is ended by the next one; nothing else on this machine is touched. Agents that end by
themselves are started again, as launchd would.
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
from bramley.api.core import Node
from bramley.api.names import agent, finalizers, flags, labels
from bramley.api.names import conditions as names
from bramley.api.pod import Pod
from bramley.apiserver.pki import private_files
from bramley.app import demo
from bramley.app.up import CameUp, Failed, MacSettings, News
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube import connecting
from bramley.kube.access import Access
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.sim.mac.folder import MacFolder

logger = log.get(__name__)

# A new one is made with each start.
TOKENS_LIVE = timedelta(days=30)
# On this machine only, and each on a port of its own.
_ADDRESS = "127.0.0.1"
_ANY_PORT = "127.0.0.1:0"
_LOOK_EVERY = timedelta(milliseconds=200)
# As launchd waits between two starts.
_RESTART_AFTER = timedelta(seconds=10)
_SUPERVISORS_END_WITHIN = timedelta(seconds=2)
_TOLD_CHARACTERS = 300
_LONGEST_LOG = 5_000_000


class Macs:
    """All simulated Macs of one server; `run` until `stop`."""

    def __init__(self, settings: MacSettings, way_in: Path, *, clock: Clock) -> None:
        self._settings = settings
        self._macs = [MacFolder(settings.folder / name) for name in settings.names]
        self._way_in = way_in
        self._clock = clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()

    def kill(self) -> None:
        """End every process of every Mac at once."""
        _signal(signal.SIGKILL, self._macs, MacFolder.processes)

    async def run(self, tell: Callable[[News], None]) -> None:
        """Start the Macs, keep their agents running until asked to stop, and end them with their VMs."""
        # Each once: an agent that is asked twice to end does so at once.
        everything = list(dict.fromkeys([*self._macs, *kept(self._settings.folder)]))
        await end(everything, self._settings.stop_within)
        try:
            found = connecting.find(self._way_in)
            async with Client(HttpTransport(found), clock=self._clock) as kube:
                await self._run(kube, found, tell)
        finally:
            await end(everything, self._settings.stop_within)

    async def _run(self, kube: Client, found: Access, tell: Callable[[News], None]) -> None:
        await retire_others(kube, self._settings)
        since, first_up = self._clock.now().replace(microsecond=0), asyncio.Event()
        keepers = [_Keeper(mac, kube, self._clock, tell, first_up) for mac in self._macs]
        async with asyncio.TaskGroup() as group:
            limit = self._settings.start_within
            tasks = [group.create_task(keeper.keep(found, limit)) for keeper in keepers]
            tasks.append(group.create_task(show_sample(kube, first_up, since)))
            await self._stopping.wait()
            for task in tasks:
                task.cancel()


@dataclass(frozen=True, slots=True)
class _Keeper:
    """Keeps the agent of one Mac running."""

    mac: MacFolder
    kube: Client
    clock: Clock
    tell: Callable[[News], None]
    first_up: asyncio.Event

    async def keep(self, found: Access, start_within: timedelta) -> None:
        """Make the Mac, start its agent, tell how that went, and start it again whenever it ends."""
        try:
            self.mac.lay_out(demo.SCRIPT)
            await _give_identity(self.kube, found, self.mac)
            process = await self._start()
        except (errors.BramleyError, OSError) as error:
            self.tell(Failed(self.mac.name, str(error)))
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_how_it_starts(process, start_within))
            while True:
                code = await process.wait()
                logger.warning("Agent ended", mac=self.mac.name, code=code, log=str(self.mac.log))
                await asyncio.sleep(_RESTART_AFTER.total_seconds())
                process = await self._start()

    async def _start(self) -> asyncio.subprocess.Process:
        _rotate(self.mac.log)
        with self.mac.log.open("ab") as out:
            # A session of its own: Ctrl-C is for us, and we end the agent in order.
            return await asyncio.create_subprocess_exec(
                *agent_command(self.mac),
                env=self.mac.environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    async def _tell_how_it_starts(
        self, process: asyncio.subprocess.Process, limit: timedelta
    ) -> None:
        begun, since = self.clock.monotonic(), self.clock.now().replace(microsecond=0)
        while process.returncode is None:
            taken = timedelta(seconds=self.clock.monotonic() - begun)
            if await is_ready(self.kube, self.mac.name, since):
                self.tell(CameUp(self.mac.name, taken))
                self.first_up.set()
                return
            if taken > limit:
                self._fail(f"its Node is not Ready after {limit.total_seconds():g} s")
                return
            await asyncio.sleep(_LOOK_EVERY.total_seconds())
        self._fail(f"its agent ended with code {process.returncode}")

    def _fail(self, why: str) -> None:
        self.tell(Failed(self.mac.name, f"{why}; {_last_words(self.mac.log)}"))


def agent_command(mac: MacFolder) -> list[str]:
    """Return the command line of a Mac's agent."""
    given = {
        flags.NODE_NAME: mac.name,
        flags.NODE_IP: _ADDRESS,
        flags.KUBECONFIG: mac.kubeconfig,
        flags.CLIENT_CA_FILE: mac.authority,
        flags.TART_BINARY: mac.programs / "tart",
        flags.TART_HOME: mac.folders.tart_home,
        flags.STATE_DIR: mac.folders.state,
        flags.USERDATA_DIR: mac.folders.user_data,
        flags.VM_LOG_DIR: mac.folders.vm_logs,
        flags.NODE_LABELS: f"{labels.FLEET}={demo.FLEET}",
        flags.GUI_PREFLIGHT: "on",
        flags.KUBELET_BIND_ADDRESS: _ANY_PORT,
        flags.METRICS_BIND_ADDRESS: _ANY_PORT,
        flags.HEALTH_PROBE_BIND_ADDRESS: _ANY_PORT,
    }
    words = [word for flag, value in given.items() for word in (flag.name, str(value))]
    # -P: the folder that somebody stands in has no say in what is imported.
    return [sys.executable, "-P", "-m", agent.MODULE, *words]


async def is_ready(kube: Client, name: str, since: datetime) -> bool:
    """Tell whether this agent, not one of an earlier start, says that its Node is Ready."""
    try:
        node = await kube.get(Node, name)
    except (errors.NotFound, errors.Unavailable):
        return False
    ready = conditions.find(node.status.conditions, names.READY)
    heard = ready and ready.last_heartbeat_time
    return bool(ready and ready.status == "True" and heard and heard >= since)


async def wait_until_ready(kube: Client, name: str, *, since: datetime, within: timedelta) -> None:
    """Wait until an agent says that its Node is Ready."""
    try:
        async with asyncio.timeout(within.total_seconds()):
            while not await is_ready(kube, name, since):  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(_LOOK_EVERY.total_seconds())
    except TimeoutError:
        told = f"its Node is not Ready after {within.total_seconds():g} s"
        raise errors.TimedOut(told) from None


async def show_sample(kube: Client, first_up: asyncio.Event, since: datetime) -> None:
    """Start the sample Pod once the first Mac is there."""
    await first_up.wait()
    await demo.start_sample(kube, since)


async def _give_identity(kube: Client, found: Access, mac: MacFolder) -> None:
    made = await identity.create(kube, mac.name, expires=TOKENS_LIVE)
    server = kubeconfig.reachable(found, None)
    content = kubeconfig.render(mac.name, made.token, server=server, trust=found.trust)
    private_files.write(mac.kubeconfig, content.reveal().encode())
    # By this the server proves itself when it asks for logs and figures.
    private_files.write(mac.authority, (found.trust.authorities or "").encode())


def kept(folder: Path | None) -> list[MacFolder]:
    """Return the Macs of this and of earlier starts that have their files in a folder."""
    return [MacFolder(root) for root in sorted(folder.glob("mac-*"))] if folder else []


async def retire_others(kube: Client, settings: MacSettings) -> None:
    """Take Macs of earlier starts away that are wanted no more, of either kind, each once; their files stay."""
    settings.note_wanted()
    for name in settings.unwanted:
        await retire(kube, name)
        settings.note_retired(name)


async def retire(kube: Client, name: str) -> None:
    """Take a Mac away that is wanted no more: its identity, the Pods on it, which only its agent would let go, and its Node."""
    await identity.revoke(kube, name)
    for pod in (await kube.list(Pod, fields=f"spec.nodeName={name}")).items:
        with contextlib.suppress(errors.NotFound):
            await _let_go(kube, pod)
    with contextlib.suppress(errors.NotFound):
        await kube.delete(Node, name)


async def _let_go(kube: Client, pod: Pod) -> None:
    others = [each for each in pod.metadata.finalizers if each != finalizers.VM_CLEANUP]
    change = {"metadata": {"finalizers": others}}
    place = pod.namespace
    await kube.merge_patch(Pod, pod.name, change, namespace=place, uid=pod.uid)
    await kube.delete(Pod, pod.name, namespace=place, uid=pod.uid, grace=timedelta())


async def end(macs: list[MacFolder], within: timedelta) -> None:
    """End the agents in order, then their VMs; what an earlier start left behind goes the same way."""
    await _send(signal.SIGTERM, macs, MacFolder.agents, within)
    # The supervisors write down how their VMs ended, and end too.
    await _send(signal.SIGKILL, macs, MacFolder.vms, _SUPERVISORS_END_WITHIN)
    await _send(signal.SIGKILL, macs, MacFolder.processes, within)


async def _send(
    number: signal.Signals,
    macs: list[MacFolder],
    which: Callable[[MacFolder], list[int]],
    within: timedelta,
) -> None:
    """Send a signal to processes of Macs and wait until they are gone, or for so long."""
    _signal(number, macs, which)
    ends = asyncio.get_running_loop().time() + within.total_seconds()
    while any(which(mac) for mac in macs) and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(_LOOK_EVERY.total_seconds())


def _signal(
    number: signal.Signals, macs: list[MacFolder], which: Callable[[MacFolder], list[int]]
) -> None:
    for pid in [pid for mac in macs for pid in which(mac)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _rotate(log_file: Path) -> None:
    if log_file.exists() and log_file.stat().st_size > _LONGEST_LOG:
        log_file.replace(log_file.with_name(f"{log_file.name}.1"))


def _last_words(log_file: Path) -> str:
    lines = log_file.read_text(errors="replace").splitlines() if log_file.exists() else []
    told = f": {lines[-1][:_TOLD_CHARACTERS]}" if lines else ""
    return f"see {log_file}{told}"
