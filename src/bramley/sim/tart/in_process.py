"""The simulated tart under virtual time: performs its effects with processes and locks in memory.

A killed process does not run another line of its command, and its locks are free at once; its files stay as they were.
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
from bramley.sim.tart.effects import (
    CommandResult,
    HttpAnswer,
    Interrupted,
    ProcessEnvironment,
    Request,
    Steps,
)
from bramley.sim.tart.guest import run_guest
from bramley.sim.tart.settings import read_context

INTERRUPTS = frozenset({signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2})
# The network of the guests: method, URL, headers and body of a request; status, body and perhaps headers of its answer, OSError for none.
HttpResponse = tuple[int, bytes] | tuple[int, bytes, Mapping[str, str]]
HttpHandler = Callable[[str, str, Mapping[str, str], bytes], HttpResponse | Awaitable[HttpResponse]]
NO_ANSWER = HttpAnswer(0)
# The shortest wait that certainly advances the clock.
_SHORTEST = 1e-5


@dataclass(slots=True, eq=False)
class Guest:
    """A running guest, the requests to its agent, and its own request."""

    plan: effects.Plan
    process: Process
    requests: deque[Request] = field(default_factory=deque)
    replies: dict[int, asyncio.Future[CommandResult | None]] = field(default_factory=dict)
    # Set by a request to its agent, and by the answer to its own.
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    sending: asyncio.Task[HttpAnswer] | None = None


@dataclass(slots=True)
class TartSimulation:
    """What all simulated tart processes of one machine share."""

    home: str
    table: Table
    clock: Clock
    rng: random.Random
    flocks: Locks = field(default_factory=Locks)
    run_locks: Locks = field(default_factory=Locks)
    guests: dict[str, Guest] = field(default_factory=dict)
    # Answers the requests of the guests' pollers; without it, no server answers.
    http: HttpHandler | None = None
    # For tests of invariants: each VM that was started, in order, and the largest number of macOS guests at a time.
    started_vms: list[str] = field(default_factory=list)
    max_guests: int = 0
    request_count: int = 0

    async def run_command(self, process: Process, call: Call) -> int:
        """Run one call of tart."""
        steps = command_line.main(call.argv[1:], self.environment(call.environment))
        try:
            return await Driver(self, process, call).run(steps)
        except OSError as error:
            # Another process removed a file that the command uses.
            call.err(f"Error: {error}")
            return 1

    def disk_space(self) -> tuple[int, int]:
        """Return the total and the free bytes of the volume."""
        context = read_context(self.environment({}))
        return int(context.settings.host["disk_bytes"]), prune.free_bytes(context)

    def seconds(self, timing: str) -> float:
        """Return the duration of a timing of the settings."""
        return read_context(self.environment({})).settings.seconds(timing)

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
        self, tart: TartSimulation, process: Process, call: Call, guest: Guest | None = None
    ) -> None:
        self._tart = tart
        self._process = process
        self._call = call
        self._guest = guest
        self._immediate: dict[type, Callable[[Any], Any]] = {
            effects.Out: lambda effect: call.out(effect.line),
            effects.Err: lambda effect: call.err(effect.line),
            effects.Write: lambda effect: _write(call, effect),
            effects.ReadStdin: lambda _: call.stdin,
            effects.Unflock: lambda effect: tart.flocks.release(effect.path, process),
            effects.IsFlocked: lambda effect: self._holder(tart.flocks, effect.path) is not None,
            effects.RunLock: lambda effect: tart.run_locks.try_acquire(effect.path, process),
            effects.RunUnlock: lambda effect: tart.run_locks.release(effect.path, process),
            effects.RunHolder: lambda effect: self._holder(tart.run_locks, effect.path),
            effects.Signal: self._signal,
            effects.Boot: self._boot,
            effects.PowerOff: lambda _: tart.table.kill(self._started_guest.process.pid),
            effects.Reply: self._reply,
            # There are no processes that could run a script.
            effects.StartPoller: lambda _: False,
            effects.SendRequest: self._send_request,
            effects.TakeAnswer: lambda _: _take_answer(self._started_guest),
            effects.DropRequest: lambda _: _drop_request(self._started_guest),
        }
        self._waiting: dict[type, Callable[[Any], Awaitable[Any]]] = {
            effects.Sleep: self._sleep,
            effects.Flock: self._flock,
            effects.AwaitGuest: lambda _: _guest_exit_code(self._started_guest),
            effects.RunInGuest: self._run_in_guest,
            effects.Listen: self._listen,
        }

    async def run(self, steps: Steps) -> int:
        """Run a command or a guest to its end and return its exit code."""
        try:
            effect = next(steps)
            while True:
                try:
                    result = await self._perform(effect)
                except (Interrupted, OSError) as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as done:
            return int(done.value)

    async def _perform(self, effect: effects.Effect) -> Any:
        gate = self._process.gate
        if gate is not None and not gate.is_set():
            await gate.wait()
        immediate = self._immediate.get(type(effect))
        return immediate(effect) if immediate is not None else await self._wait(effect)

    async def _wait(self, effect: effects.Effect) -> Any:
        process = self._process
        if process.pending_signals:
            raise _interrupted(process)
        process.is_interruptible = True
        try:
            return await self._waiting[type(effect)](effect)
        except asyncio.CancelledError:
            if not (process.is_alive and process.pending_signals and process.task):
                raise
            process.task.uncancel()
            raise _interrupted(process) from None
        finally:
            process.is_interruptible = False

    async def _flock(self, effect: effects.Flock) -> bool:
        if not effect.wait:
            return self._tart.flocks.try_acquire(effect.path, self._process)
        await self._tart.flocks.acquire(effect.path, self._process)
        return True

    def _holder(self, locks: Locks, path: str) -> int | None:
        holder = locks.holder(path)
        return None if holder is None or holder is self._process else holder.pid

    def _signal(self, effect: effects.Signal) -> bool:
        if self._tart.table.find(effect.pid) is None:
            return False
        self._tart.table.kill(effect.pid, signal.Signals[f"SIG{effect.signal}"])
        return True

    def _boot(self, effect: effects.Boot) -> int:
        tart, plan = self._tart, effect.plan
        # As with the real service, its command line does not name the VM.
        process = tart.table.spawn(
            (system.GUEST_SERVICE,), lambda started: _run_guest(tart, plan, started)
        )
        self._guest = guest = tart.guests[plan.vm] = Guest(plan, process)
        tart.started_vms.append(plan.vm)
        macos_guests = sum(guest.plan.is_macos for guest in tart.guests.values())
        tart.max_guests = max(tart.max_guests, macos_guests)
        tart.flocks.transfer(effect.slot, self._process, process)
        process.on_exit.append(lambda: _switch_off(tart, plan.vm, process))
        process.on_exit.append(lambda: _drop_request(guest))
        if not plan.outlives:
            self._process.on_exit.append(lambda: tart.table.kill(process.pid))
        return process.pid

    @property
    def _started_guest(self) -> Guest:
        if self._guest is None:
            raise RuntimeError("a command used its guest before it started one")
        return self._guest

    async def _run_in_guest(self, effect: effects.RunInGuest) -> CommandResult | None:
        guest = self._tart.guests.get(effect.vm)
        if guest is None:
            return None
        self._tart.request_count += 1
        request = Request(effect.argv, effect.stdin, self._tart.request_count)
        reply: asyncio.Future[CommandResult | None] = asyncio.get_running_loop().create_future()
        guest.replies[request.id] = reply
        guest.requests.append(request)
        guest.arrived.set()
        try:
            async with asyncio.timeout(effect.seconds):
                return await reply
        except TimeoutError:
            return None
        finally:
            # A request that timed out must not run later.
            guest.replies.pop(request.id, None)
            with contextlib.suppress(ValueError):
                guest.requests.remove(request)

    async def _listen(self, effect: effects.Listen) -> Request | None:
        guest = self._started_guest
        if not guest.requests and effect.seconds > 0 and not _has_answer(guest):
            guest.arrived.clear()
            try:
                async with asyncio.timeout(_bounded(effect.seconds)):
                    await guest.arrived.wait()
            except TimeoutError:
                return None
        return guest.requests.popleft() if guest.requests else None

    async def _sleep(self, effect: effects.Sleep) -> None:
        guest = self._guest
        # The driver of `tart run` has a guest, too.
        is_own = guest is not None and guest.process is self._process
        if guest is None or not is_own or guest.sending is None:
            await _sleep(effect.seconds)
        else:
            await asyncio.wait({guest.sending}, timeout=_bounded(effect.seconds))

    def _send_request(self, effect: effects.SendRequest) -> None:
        guest = self._started_guest
        guest.sending = self._tart.table.start(_answer(self._tart.http, effect))
        guest.sending.add_done_callback(lambda _: guest.arrived.set())

    def _reply(self, effect: effects.Reply) -> None:
        reply = self._started_guest.replies.pop(effect.request.id, None)
        if reply is not None and not reply.done():
            reply.set_result(effect.result)


async def _answer(http: HttpHandler | None, request: effects.SendRequest) -> HttpAnswer:
    if http is None:
        return NO_ANSWER
    try:
        answer = http(request.method, request.url, request.headers, request.body)
        return HttpAnswer(*(await answer if isinstance(answer, Awaitable) else answer))
    except OSError:
        return NO_ANSWER


def _has_answer(guest: Guest) -> bool:
    return guest.sending is not None and guest.sending.done()


def _take_answer(guest: Guest) -> HttpAnswer | None:
    if guest.sending is None or not guest.sending.done():
        return None
    answer, guest.sending = guest.sending.result(), None
    return answer


def _drop_request(guest: Guest) -> None:
    if guest.sending is not None:
        guest.sending.cancel()
        guest.sending = None


def _interrupted(process: Process) -> Interrupted:
    return Interrupted(process.pending_signals.pop(0).name.removeprefix("SIG"))


async def _sleep(seconds: float) -> None:
    bounded = _bounded(seconds)
    if bounded is None:
        await asyncio.get_running_loop().create_future()
    else:
        await asyncio.sleep(bounded)


def _bounded(seconds: float) -> float | None:
    """Return how long to wait; at least what the clock can resolve, so that waiting for a point in time ends."""
    return None if math.isinf(seconds) else max(seconds, _SHORTEST) if seconds > 0 else 0


def _write(call: Call, effect: effects.Write) -> None:
    for line in effect.text.splitlines():
        (call.err if effect.is_error else call.out)(line)


async def _guest_exit_code(guest: Guest) -> int:
    code = await asyncio.shield(guest.process.exit_code)
    return code if code >= 0 else effects.CRASHED


async def _run_guest(tart: TartSimulation, plan: effects.Plan, process: Process) -> int:
    # A guest has no stdout: it writes into its shares.
    call = Call((), out=_discard, err=_discard)
    driver = Driver(tart, process, call, tart.guests[plan.vm])
    try:
        return await driver.run(run_guest(plan, tart.environment({})))
    except OSError:
        # Its disk was removed.
        return effects.CRASHED


def _discard(_: str) -> None: ...


def _switch_off(tart: TartSimulation, vm: str, process: Process) -> None:
    guest = tart.guests.get(vm)
    if guest is None or guest.process is not process:
        return
    del tart.guests[vm]
    for reply in guest.replies.values():
        if not reply.done():
            reply.set_result(None)
