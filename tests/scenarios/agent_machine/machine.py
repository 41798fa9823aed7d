"""A world to which anything may happen, step by step, and which must come to rest when it is left in peace.

A story is a list of steps; it is told whole under virtual time, and the invariants are checked after each step.
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
from bramley.base import virtual_time
from bramley.sim.mac.agent_process import AgentProcess
from tests.scenarios.agent_life.invariants import FINISHED, vm_of
from tests.scenarios.agent_life.world import REST, TAGGED, World, a_world, is_ready
from tests.scenarios.agent_machine.hand import PREFIX, Hand
from tests.scenarios.agent_machine.line import Line, Wire
from tests.unit.agent.clocks import SetClock

NAMES = ("a", "b", "c")
# Short, so that few heartbeats are in a life; each stage can still be told from the next.
TIMINGS = {"address": 2.0, "agent": 2.5, "ready": 3.0, "halt": 1.0, "start": 0.3}
SIZE = 250_000_000
# A push takes longer than the collector's period.
PUSHED_PER_SECOND = SIZE / 400
STOPPING = 30.0
# Hung calls have their deadlines, and retries their backoff, which grow to five minutes each.
PATIENCE = timedelta(minutes=45)


class Step(Protocol):
    """One thing that happens."""

    async def take(self, machine: Machine) -> None:
        """Let it happen."""
        ...


@dataclass(slots=True)
class Machine:
    """The world, and what the story has done to it."""

    world: World
    line: Line
    hand: Hand
    clock: SetClock
    # Names of Pods that no VM can come of, so that nobody waits for their end.
    hopeless: set[str] = field(default_factory=set)
    # After so many of its effects the agent dies, and is down for so long.
    dies_in: int | None = None
    down: float = 1.0
    kicked: list[str] = field(default_factory=list)
    _dead: AgentProcess | None = None
    # The pids of all dead agents.
    _graves: set[int] = field(default_factory=set)
    _struck: asyncio.Event = field(default_factory=asyncio.Event)
    _burial: asyncio.Event = field(default_factory=asyncio.Event)

    def meet(self, _moment: str) -> None:
        """Count an effect of the agent."""
        if self.dies_in is None:
            return
        self.dies_in -= 1
        if self.dies_in < 0:
            self.strike()

    def strike(self) -> None:
        """Kill the agent here and now; the next one comes after a while."""
        self.dies_in = None
        side, task = self.world.side, self.world.task
        if side is None or task is None or side is self._dead:
            return
        side.kill()
        # At once, for what is dead must not go on in no time at all.
        task.cancel()
        self._dead = side
        self._graves.add(side.pid)
        self._burial.clear()
        self._struck.set()

    async def stop(self) -> None:
        """Ask the agent to stop, as a new release does."""
        agent, task = self.world.agent, self.world.task
        if agent is None or task is None or self.world.side is self._dead:
            return
        agent.stop()
        await asyncio.wait((task,), timeout=STOPPING)
        assert task.done(), "the agent does not stop"
        self.strike()

    def reboot(self) -> None:
        """Reboot the Mac."""
        self.strike()
        self.hand.lose()
        self.world.mac.reboot()

    async def reap(self) -> None:
        """Bury each dead agent and start the next one, as launchd does."""
        while True:
            await self._struck.wait()
            self._struck.clear()
            await self.world.kill()
            self._burial.set()
            await asyncio.sleep(self.down)
            self.world.ensure_started()

    async def buried(self) -> None:
        """Wait until the agent that was struck is no more."""
        await self._burial.wait()

    def check(self) -> None:
        """Raise if anything was ever broken."""
        self.world.invariants.check()
        broken = [*self.hand.missing(), *self._unheld(), *self.kicked]
        assert not broken, "\n".join(broken)

    def watch_kicks(self) -> None:
        """Note each VM that a restart of loginwindow takes down."""
        session, guests = self.world.mac.session, self.world.mac.tart.guests
        end_guests = session.kicked

        def kicked() -> None:
            self.kicked.extend(f"loginwindow was restarted under VM {vm}" for vm in guests)
            end_guests()

        session.kicked = kicked

    def _unheld(self) -> list[str]:
        """Return the Pods that have a VM and nothing that keeps them until it is gone."""
        seen = self.world.invariants
        return [
            f"{pod.name} has a VM and is not held"
            for uid, pod in seen.current().items()
            if vm_of(pod) in seen.vms()
            and uid not in seen.excused
            and finalizers.VM_CLEANUP not in pod.metadata.finalizers
        ]

    def lift(self) -> None:
        """Take all trouble away that somebody could take away."""
        mac = self.world.mac
        self.dies_in = None
        self.line.mend()
        mac.faults.heal()
        mac.settings.host(leaked_slots=0, other_bytes=0)
        mac.session.logs_in = True
        mac.session.log_in()
        self.hand.leave()
        self.end_leaked()
        self.end_leftovers()

    def end_leftovers(self) -> None:
        """Kill what dead agents have left running: real agents do so when they start, and here it is the harder that they do not."""
        table = self.world.mac.table
        for process in table.living():
            if process.parent in self._graves:
                table.kill_group(process.group)

    def end_leaked(self) -> None:
        """Kill the guests whose tart is gone."""
        world = self.world.mac.tart
        for vm in self.world.invariants.left_behind():
            world.table.kill(world.guests[vm].process.pid)

    async def come_to_rest(self) -> None:
        """See that every Pod ends that can, that every Pod goes, and that nothing is left."""
        world = self.world
        self.lift()
        await world.until(self._all_have_ended, within=PATIENCE, what=f"ends of {self._open()}")
        await world.until(lambda: is_ready(world.kube), within=PATIENCE, what="the Node is Ready")
        await world.until(self.hand.has_pushed, within=PATIENCE, what="all is pushed")
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
        """Return what is left of Pods that have ended: a call that hung before the peace has its time to miss its deadline."""
        pods = self.world.invariants.current().values()
        ended = {vm_of(pod) for pod in pods if pod.status.phase in FINISHED}
        return [each for each in self.world.invariants.left() if each.split()[-1] in ended]

    def _open(self) -> list[str]:
        return [
            pod.name
            for pod in self.world.invariants.current().values()
            if pod.deleting or (pod.status.phase not in FINISHED and pod.name not in self.hopeless)
        ]

    async def _is_empty(self) -> bool:
        left = [each for each in self.world.invariants.left() if PREFIX not in each]
        return not left and not self.world.invariants.current()


def tell(story: Sequence[Step], *, seed: int) -> None:
    """Tell a story and bring its world to rest; raise if anything broke or stays."""
    with tempfile.TemporaryDirectory() as folder:
        virtual_time.run(_tell(story, Path(folder), seed), seed=seed)


async def _tell(story: Sequence[Step], folder: Path, seed: int) -> None:
    async with a_machine(folder, seed) as machine:
        for step in story:
            await step.take(machine)
            machine.check()
        await machine.come_to_rest()


@asynccontextmanager
async def a_machine(folder: Path, seed: int) -> AsyncIterator[Machine]:
    """Give a machine whose agent runs."""
    async with a_world(folder, seed=seed) as world:
        line, reach = Line(), world.transport
        world.transport = lambda: Wire(line, reach())
        world.invariants.has_bounds = False
        world.mac.settings.timings(**TIMINGS, push_bytes_per_second=PUSHED_PER_SECOND)
        world.mac.settings.image(TAGGED, size_bytes=SIZE, guest={"work": 5.0})
        world.mac.clock = clock = SetClock(world.clock)
        machine = Machine(world, line, Hand(world.mac), clock)
        world.on_checkpoint = machine.meet
        machine.watch_kicks()
        undertaker = world.group.create_task(machine.reap())
        world.ensure_started()
        yield machine
        undertaker.cancel()
        machine.hand.leave()
