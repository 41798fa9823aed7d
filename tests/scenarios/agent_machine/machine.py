"""A world that is disturbed step by step, and must come to rest when all faults are removed.

A scenario is a list of steps; it runs under virtual time, and the invariants are checked after each step.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from bramley.api.names import finalizers
from bramley.sim.mac.agent_process import AgentProcess
from tests import virtual_time
from tests.scenarios.agent_life.invariants import FINISHED, vm_of
from tests.scenarios.agent_life.world import REST, TAGGED, World, a_world, is_ready
from tests.scenarios.agent_machine.network import FaultyTransport, Network
from tests.scenarios.agent_machine.shell_user import PREFIX, ShellUser
from tests.unit.agent.clocks import SetClock

NAMES = ("a", "b", "c")
# Short, so that there are few heartbeats; the stages still differ in time.
TIMINGS = {"address": 2.0, "agent": 2.5, "ready": 3.0, "halt": 1.0, "start": 0.3}
SIZE = 250_000_000
# A push takes longer than the collector's period.
PUSHED_PER_SECOND = SIZE / 400
STOPPING = 30.0
# Hung calls have their deadlines, and retries their backoff, which grow to five minutes each.
TIMEOUT = timedelta(minutes=45)


class Step(Protocol):
    """One event of a scenario."""

    async def apply(self, machine: Machine) -> None:
        """Apply it to the machine."""
        ...


@dataclass(slots=True)
class Machine:
    """The world, and the faults that the scenario has injected."""

    world: World
    network: Network
    shell_user: ShellUser
    clock: SetClock
    # Names of Pods that can never get a VM, so their end is not waited for.
    unsatisfiable: set[str] = field(default_factory=set)
    # After so many checkpoints the agent is killed, and the next one starts after `down` seconds.
    killed_in: int | None = None
    down: float = 1.0
    kicked: list[str] = field(default_factory=list)
    _killed: AgentProcess | None = None
    # The pids of all killed agents.
    _killed_pids: set[int] = field(default_factory=set)
    _has_killed: asyncio.Event = field(default_factory=asyncio.Event)
    _has_reaped: asyncio.Event = field(default_factory=asyncio.Event)

    def on_checkpoint(self, _checkpoint: str) -> None:
        """Count a checkpoint of the agent."""
        if self.killed_in is None:
            return
        self.killed_in -= 1
        if self.killed_in < 0:
            self.kill_agent()

    def kill_agent(self) -> None:
        """Kill the agent now; the next one starts after a while."""
        self.killed_in = None
        side, task = self.world.side, self.world.task
        if side is None or task is None or side is self._killed:
            return
        side.kill()
        # At once: under virtual time a killed agent could otherwise still run.
        task.cancel()
        self._killed = side
        self._killed_pids.add(side.pid)
        self._has_reaped.clear()
        self._has_killed.set()

    async def stop(self) -> None:
        """Stop the agent with a signal, as an update does."""
        agent, task = self.world.agent, self.world.task
        if agent is None or task is None or self.world.side is self._killed:
            return
        agent.stop()
        await asyncio.wait((task,), timeout=STOPPING)
        assert task.done(), "the agent does not stop"
        self.kill_agent()

    def reboot(self) -> None:
        """Reboot the Mac."""
        self.kill_agent()
        self.shell_user.on_reboot()
        self.world.mac.reboot()

    async def restart_agents(self) -> None:
        """Reap each killed agent and start the next one, as launchd does."""
        while True:
            await self._has_killed.wait()
            self._has_killed.clear()
            await self.world.kill()
            self._has_reaped.set()
            await asyncio.sleep(self.down)
            self.world.ensure_started()

    async def reaped(self) -> None:
        """Wait until the killed agent is reaped."""
        await self._has_reaped.wait()

    def check(self) -> None:
        """Raise if an invariant was ever violated."""
        self.world.invariants.check()
        violations = [*self.shell_user.damage(), *self._without_finalizer(), *self.kicked]
        assert not violations, "\n".join(violations)

    def watch_kicks(self) -> None:
        """Record each VM that a restart of loginwindow ends."""
        session, guests = self.world.mac.session, self.world.mac.tart.guests
        end_guests = session.on_restart

        def kicked() -> None:
            self.kicked.extend(f"loginwindow was restarted under VM {vm}" for vm in guests)
            end_guests()

        session.on_restart = kicked

    def _without_finalizer(self) -> list[str]:
        """Return the Pods that have a VM and no finalizer."""
        invariants = self.world.invariants
        return [
            f"{pod.name} has a VM and no finalizer"
            for uid, pod in invariants.current().items()
            if vm_of(pod) in invariants.vms()
            and uid not in invariants.excused
            and finalizers.VM_CLEANUP not in pod.metadata.finalizers
        ]

    def remove_faults(self) -> None:
        """Remove all faults that can be removed."""
        mac = self.world.mac
        self.killed_in = None
        self.network.restore()
        mac.faults.clear()
        mac.settings.host(leaked_slots=0, other_bytes=0)
        mac.session.logs_in = True
        mac.session.log_in()
        self.shell_user.log_out()
        self.end_leaked()
        self.end_leftovers()

    def end_leftovers(self) -> None:
        """Kill the programs of killed agents: a real agent does so when it starts, here they run until now, which is harder."""
        table = self.world.mac.table
        for process in table.living():
            if process.parent in self._killed_pids:
                table.kill_group(process.group)

    def end_leaked(self) -> None:
        """Kill the guests whose tart is gone."""
        world = self.world.mac.tart
        for vm in self.world.invariants.orphaned_guests():
            world.table.kill(world.guests[vm].process.pid)

    async def come_to_rest(self) -> None:
        """Check that every Pod that can end does, that every deleted Pod is gone, and that nothing is left."""
        world = self.world
        self.remove_faults()
        await world.until(self._all_have_ended, within=TIMEOUT, what=f"ends of {self._open()}")
        await world.until(lambda: is_ready(world.kube), within=TIMEOUT, what="the Node is Ready")
        await world.until(self.shell_user.has_pushed, within=TIMEOUT, what="all is pushed")
        world.invariants.up_since = world.clock.now()
        world.invariants.has_bounds = True
        for name in NAMES:
            await world.delete(name)
        await world.until(self._is_empty, within=REST, what="nothing is left")
        self.check()
        world.invariants.has_bounds = False

    async def _all_have_ended(self) -> bool:
        self.end_leaked()
        return not self._open() and not self._remains()

    def _remains(self) -> list[str]:
        """Return what is left of Pods that have ended: a call that hung before has the time to reach its deadline."""
        pods = self.world.invariants.current().values()
        ended = {vm_of(pod) for pod in pods if pod.status.phase in FINISHED}
        return [each for each in self.world.invariants.left() if each.split()[-1] in ended]

    def _open(self) -> list[str]:
        return [
            pod.name
            for pod in self.world.invariants.current().values()
            if pod.deleting
            or (pod.status.phase not in FINISHED and pod.name not in self.unsatisfiable)
        ]

    async def _is_empty(self) -> bool:
        left = [each for each in self.world.invariants.left() if PREFIX not in each]
        return not left and not self.world.invariants.current()


def run(scenario: Sequence[Step], *, seed: int) -> None:
    """Run a scenario and bring its world to rest; raise if an invariant is violated or anything is left."""
    with tempfile.TemporaryDirectory() as folder:
        virtual_time.run(_run(scenario, Path(folder), seed), seed=seed)


async def _run(scenario: Sequence[Step], folder: Path, seed: int) -> None:
    async with a_machine(folder, seed) as machine:
        for step in scenario:
            await step.apply(machine)
            machine.check()
        await machine.come_to_rest()


@asynccontextmanager
async def a_machine(folder: Path, seed: int) -> AsyncIterator[Machine]:
    """Create a machine whose agent runs."""
    async with a_world(folder, seed=seed) as world:
        network, transport = Network(), world.transport
        world.transport = lambda: FaultyTransport(network, transport())
        world.invariants.has_bounds = False
        world.mac.settings.timings(**TIMINGS, push_bytes_per_second=PUSHED_PER_SECOND)
        world.mac.settings.image(TAGGED, size_bytes=SIZE, guest={"work": 5.0})
        world.mac.clock = clock = SetClock(world.clock)
        machine = Machine(world, network, ShellUser(world.mac), clock)
        world.on_checkpoint = machine.on_checkpoint
        machine.watch_kicks()
        restarts = world.group.create_task(machine.restart_agents())
        world.ensure_started()
        yield machine
        restarts.cancel()
        machine.shell_user.log_out()
