"""The in-process face of the simulated tart: its effects under virtual time, with processes and locks in memory.

A killed process never runs another line of its command, and what it had locked is free at once; its files stay as they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bramley.agent.platform import system
from bramley.base.clock import Clock
from bramley.sim.mac.processes import Call, Locks, Process, Table
from bramley.sim.tart import command_line, effects, prune
from bramley.sim.tart.effects import Answer, Interrupted, ProcessEnvironment, Request, Steps
from bramley.sim.tart.guest import live
from bramley.sim.tart.settings import read_context

INTERRUPTS = frozenset({signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2})
# Of time that the clock surely tells apart.
_SHORTEST = 1e-5


@dataclass(slots=True, eq=False)
class Guest:
    """A guest that is switched on, and what waits for its agent."""

    plan: effects.Plan
    process: Process
    requests: deque[Request] = field(default_factory=deque)
    answers: dict[int, asyncio.Future[Answer | None]] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class World:
    """What all simulated tart processes of one machine share."""

    home: str
    table: Table
    clock: Clock
    rng: random.Random
    flocks: Locks = field(default_factory=Locks)
    run_locks: Locks = field(default_factory=Locks)
    guests: dict[str, Guest] = field(default_factory=dict)
    # For those who check what must never happen: each VM that was switched on, in order, and the most guests at once.
    switched_on: list[str] = field(default_factory=list)
    most_at_once: int = 0
    asked: int = 0

    async def tart(self, process: Process, call: Call) -> int:
        """Be one call of tart."""
        steps = command_line.main(call.argv[1:], self.environment(call.environment))
        try:
            return await Driver(self, process, call).run(steps)
        except OSError as error:
            # Somebody took a file away under its hands.
            call.err(f"Error: {error}")
            return 1

    def room(self) -> tuple[int, int]:
        """Return the bytes of the volume, and those of them that are free."""
        view = read_context(self.environment({}))
        return int(view.settings.host["disk_bytes"]), prune.free(view)

    def environment(self, environment: Mapping[str, str]) -> ProcessEnvironment:
        """Return what one process of this machine is given."""
        return ProcessEnvironment(
            environment.get("TART_HOME", self.home),
            environment,
            now=lambda: self.clock.now().timestamp(),
            entropy=self.rng.randbytes,
        )


class Driver:
    """Performs the effects of one process, or of one guest."""

    def __init__(
        self, world: World, process: Process, call: Call, guest: Guest | None = None
    ) -> None:
        self._world = world
        self._process = process
        self._call = call
        self._guest = guest
        self._at_once: dict[type, Callable[[Any], Any]] = {
            effects.Out: lambda effect: call.out(effect.line),
            effects.Err: lambda effect: call.err(effect.line),
            effects.Write: lambda effect: _write(call, effect),
            effects.ReadStdin: lambda _: call.stdin,
            effects.Unflock: lambda effect: world.flocks.release(effect.path, process),
            effects.IsFlocked: lambda effect: self._other(world.flocks, effect.path) is not None,
            effects.RunLock: lambda effect: world.run_locks.take(effect.path, process),
            effects.RunUnlock: lambda effect: world.run_locks.release(effect.path, process),
            effects.RunHolder: lambda effect: self._other(world.run_locks, effect.path),
            effects.Signal: self._signal,
            effects.Boot: self._boot,
            effects.PowerOff: lambda _: world.table.kill(self._own_guest.process.pid),
            effects.Reply: self._reply,
        }
        self._waiting: dict[type, Callable[[Any], Awaitable[Any]]] = {
            effects.Sleep: lambda effect: _sleep(effect.seconds),
            effects.Flock: self._flock,
            effects.AwaitGuest: lambda _: _guest_s_end(self._own_guest),
            effects.Ask: self._ask,
            effects.Listen: self._listen,
        }

    async def run(self, steps: Steps) -> int:
        """Take all steps of a command or a guest and return its code."""
        try:
            effect = next(steps)
            while True:
                try:
                    answer = await self._perform(effect)
                except (Interrupted, OSError) as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as done:
            return int(done.value)

    async def _perform(self, effect: effects.Effect) -> Any:
        gate = self._process.gate
        if gate is not None and not gate.is_set():
            await gate.wait()
        at_once = self._at_once.get(type(effect))
        return at_once(effect) if at_once is not None else await self._wait(effect)

    async def _wait(self, effect: effects.Effect) -> Any:
        process = self._process
        if process.caught:
            raise _interrupted(process)
        process.is_interruptible = True
        try:
            return await self._waiting[type(effect)](effect)
        except asyncio.CancelledError:
            if not (process.lives and process.caught and process.task):
                raise
            process.task.uncancel()
            raise _interrupted(process) from None
        finally:
            process.is_interruptible = False

    async def _flock(self, effect: effects.Flock) -> bool:
        if not effect.wait:
            return self._world.flocks.take(effect.path, self._process)
        await self._world.flocks.wait(effect.path, self._process)
        return True

    def _other(self, locks: Locks, path: str) -> int | None:
        holder = locks.holder(path)
        return None if holder is None or holder is self._process else holder.pid

    def _signal(self, effect: effects.Signal) -> bool:
        if self._world.table.find(effect.pid) is None:
            return False
        self._world.table.kill(effect.pid, signal.Signals[f"SIG{effect.signal}"])
        return True

    def _boot(self, effect: effects.Boot) -> int:
        world, plan = self._world, effect.plan
        # The framework's process does not tell whose guest it is.
        process = world.table.spawn(
            (system.GUEST_SERVICE,), lambda started: _run_guest(world, plan, started)
        )
        self._guest = world.guests[plan.vm] = Guest(plan, process)
        world.switched_on.append(plan.vm)
        world.most_at_once = max(world.most_at_once, len(world.guests))
        world.flocks.hand_over(effect.slot, self._process, process)
        process.leaving.append(lambda: _switch_off(world, plan.vm, process))
        if not plan.outlives:
            self._process.leaving.append(lambda: world.table.kill(process.pid))
        return process.pid

    @property
    def _own_guest(self) -> Guest:
        if self._guest is None:
            raise RuntimeError("a command asked for its guest and has started none")
        return self._guest

    async def _ask(self, effect: effects.Ask) -> Answer | None:
        guest = self._world.guests.get(effect.vm)
        if guest is None:
            return None
        self._world.asked += 1
        request = Request(effect.argv, effect.stdin, self._world.asked)
        heard: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        guest.answers[request.id] = heard
        guest.requests.append(request)
        guest.arrived.set()
        try:
            async with asyncio.timeout(effect.seconds):
                return await heard
        except TimeoutError:
            return None
        finally:
            # Nobody runs what was asked for in vain.
            guest.answers.pop(request.id, None)
            with contextlib.suppress(ValueError):
                guest.requests.remove(request)

    async def _listen(self, effect: effects.Listen) -> Request | None:
        guest = self._own_guest
        if not guest.requests and effect.seconds > 0:
            guest.arrived.clear()
            try:
                async with asyncio.timeout(_bounded(effect.seconds)):
                    await guest.arrived.wait()
            except TimeoutError:
                return None
        return guest.requests.popleft() if guest.requests else None

    def _reply(self, effect: effects.Reply) -> None:
        heard = self._own_guest.answers.pop(effect.request.id, None)
        if heard is not None and not heard.done():
            heard.set_result(effect.answer)


def _interrupted(process: Process) -> Interrupted:
    return Interrupted(process.caught.pop(0).name.removeprefix("SIG"))


async def _sleep(seconds: float) -> None:
    bounded = _bounded(seconds)
    if bounded is None:
        await asyncio.get_running_loop().create_future()
    else:
        await asyncio.sleep(bounded)


def _bounded(seconds: float) -> float | None:
    """Return how long to wait; no less than what the clock can tell, so that waiting for a moment always ends."""
    return None if math.isinf(seconds) else max(seconds, _SHORTEST) if seconds > 0 else 0


def _write(call: Call, effect: effects.Write) -> None:
    for line in effect.text.splitlines():
        (call.err if effect.is_error else call.out)(line)


async def _guest_s_end(guest: Guest) -> int:
    code = await asyncio.shield(guest.process.ended)
    return code if code >= 0 else effects.CRASHED


async def _run_guest(world: World, plan: effects.Plan, process: Process) -> int:
    # It has no output of its own: what it has to say stands in its shares.
    call = Call((), out=_hear_nothing, err=_hear_nothing)
    driver = Driver(world, process, call, world.guests[plan.vm])
    try:
        return await driver.run(live(plan, world.environment({})))
    except OSError:
        # Somebody took its disk away.
        return effects.CRASHED


def _hear_nothing(_: str) -> None: ...


def _switch_off(world: World, vm: str, process: Process) -> None:
    guest = world.guests.get(vm)
    if guest is None or guest.process is not process:
        return
    del world.guests[vm]
    for heard in guest.answers.values():
        if not heard.done():
            heard.set_result(None)
