"""The VMs of a model Mac: the modelled VM of each Pod, its process in the Mac's process table, and the jobs of runners.

Steps of a bootstrap see the processes, and a restart of loginwindow ends them, as on a real Mac. What disturbed a VM is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from bramley.agent.pods.status import RUNNING, Exit
from bramley.api.names import agent, host, labels
from bramley.api.pod import Pod
from bramley.sim.fleet.vms import ModelledVm
from bramley.sim.macos.mac import Mac

_TIMER_SLACK_SECONDS = 0.01
_SLOT_POLL_SECONDS = 5.0


class _Marks(NamedTuple):
    """What must not change while a VM runs."""

    loginwindow_restarts: int
    tart: int


@dataclass(slots=True, eq=False)
class VmProcesses:
    """The processes of the VMs of one boot of a Mac; `disturbances` gets what was changed under a running VM."""

    mac: Mac
    disturbances: list[str]
    _running: dict[str, tuple[int, _Marks]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the number of VMs that run."""
        return len(self._running)

    def start(self, vm: str) -> None:
        """Add the process of a VM."""
        self.end(vm)
        with self.mac.change() as state:
            state["launchd"]["last_pid_count"] += 1
            pid = int(state["launchd"]["last_pid_count"])
            command = f"{host.TART_BINARY} run --no-graphics {vm}"
            state["processes"].append({"pid": pid, "command": command})
        self._running[vm] = pid, self._marks()

    def end(self, vm: str) -> None:
        """Remove the process of a VM."""
        self.check()
        pid, _ = self._running.pop(vm, (None, None))
        if pid is not None:
            with self.mac.change() as state:
                state["processes"] = [each for each in state["processes"] if each["pid"] != pid]

    def forget(self) -> None:
        """Drop all VMs: they have ended with the boot of the Mac."""
        self._running.clear()

    def check(self) -> set[str]:
        """Record what has changed under running VMs, and return those whose process has ended."""
        if not self._running:
            return set()
        alive = {each["pid"] for each in self.mac.state["processes"]}
        now = self._marks()
        for vm, (pid, before) in self._running.items():
            changed = [name for name, old, new in zip(now._fields, before, now, strict=True) if old != new]  # fmt: skip
            self.disturbances += [f"{name} changed while VM {vm} ran" for name in changed]
            self._running[vm] = pid, now
        return {vm for vm, (pid, _) in self._running.items() if pid not in alive}

    def _marks(self) -> _Marks:
        bundle = self.mac.files.find(host.TART_BUNDLE)
        restarts = self.mac.state["console"].get("kicked_count", 0)
        return _Marks(restarts, bundle.st_ino if bundle else 0)


@dataclass(eq=False, kw_only=True)
class MacVm(ModelledVm):
    """A modelled VM with a process on a model Mac."""

    processes: VmProcesses
    # How many VMs the Mac runs at once.
    slots: int = 2
    # Set when only the agent ends: the next one takes the VM over.
    is_detached: bool = False

    @property
    def name(self) -> str:
        return f"{self.pod.name}-{self.pod.uid[:8]}"

    def end_if_killed(self, killed: set[str]) -> None:
        """End the VM if its process was killed."""
        if self.name in killed:
            self.exit(1)

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            if not self.is_detached:
                self.processes.end(self.name)

    async def _boot(self) -> Exit | None:
        while self.processes.count >= self.slots:
            await self._publish_waiting(agent.AWAITING_SLOT, "all VM slots of this host are taken")
            await self._wait(_SLOT_POLL_SECONDS)
        self.processes.start(self.name)
        return await super()._boot()

    async def _publish_exit(self, exit: Exit) -> None:
        self.processes.end(self.name)
        await super()._publish_exit(exit)


@dataclass(slots=True, eq=False)
class RunnerJobs:
    """The jobs of runner Pods: one begins when dispatch labels the Pod with its owner, and the runner exits at its end.

    `killed` has the names of Pods that lost their VM during a job, for any reason.
    """

    seconds: Callable[[Pod], float]
    killed: list[str] = field(default_factory=list)
    # The name of the Pod and the end of its job, by its uid.
    _jobs: dict[str, tuple[str, float]] = field(default_factory=dict)
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    def lose(self, uids: Iterable[str]) -> None:
        """End the jobs of Pods whose VM does not run any more, and record those that had not ended."""
        now = asyncio.get_running_loop().time()
        for uid in uids:
            name, end = self._jobs.pop(uid, ("", 0.0))
            if now < end - _TIMER_SLACK_SECONDS:
                self.killed.append(name)

    def guest_polls(self, vm: ModelledVm) -> None:
        """Begin a job that was dispatched, or continue one under a new agent."""
        self._timers.pop(vm.pod.uid, None)
        self.guest_changed(vm)

    def guest_changed(self, vm: ModelledVm) -> None:
        """Begin the job when it is dispatched."""
        pod, loop = vm.pod, asyncio.get_running_loop()
        has_owner = labels.RUNNER_POOL_OWNER in pod.metadata.labels
        if has_owner and pod.status.phase == RUNNING and pod.uid not in self._timers:
            new = pod.name, loop.time() + self.seconds(pod)
            _, end = self._jobs.setdefault(pod.uid, new)
            self._timers[pod.uid] = loop.call_at(end, vm.exit, 0)

    def guest_gone(self, vm: ModelledVm) -> None:
        """Record a job that was lost with its VM."""
        if timer := self._timers.pop(vm.pod.uid, None):
            timer.cancel()
        if not (isinstance(vm, MacVm) and vm.is_detached):
            self.lose([vm.pod.uid])
