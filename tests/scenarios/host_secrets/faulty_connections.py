"""Connections on which every command with a secret fails once: by a fault, or by a bug whose error contains the command."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable

from bramley.base.clock import Clock
from bramley.base.errors import BramleyError
from bramley.base.secret import Secret
from bramley.host import converge
from bramley.host.commands import Command, Run, Write
from bramley.host.progress import Progress
from bramley.host.step import Step
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Cut, CutPoint, Fail, Fault, Hang
from bramley.sim.macos.mac import Mac
from tests.scenarios.host_secrets.canaries import Canaries, contents_of
from tests.scenarios.host_secrets.macs import Output, leaks_of

MakeFault = Callable[[Command], Fault]
_MAX_RUNS = 20


def echo_input(command: Command) -> Fault:
    """Fail like a program that prints its input, plain and in base64, as it is sent."""
    contents = [text for text in contents_of(command) if text]
    printed = [form for text in contents for form in (text, base64.b64encode(text))]
    return Fail(code=1, stderr=b" ".join(printed).decode("utf-8", "replace"))


def cut(_: Command) -> Fault:
    return Cut(CutPoint.UNANSWERED)


def hang(_: Command) -> Fault:
    return Hang()


class FaultyConnection(ModelConnection):
    """Every command with a secret fails once; `failed` are their steps and purposes."""

    def __init__(
        self, mac: Mac, *, clock: Clock, canaries: Canaries, make_fault: MakeFault
    ) -> None:
        super().__init__(mac, clock=clock)
        self.canaries = canaries
        self.make_fault = make_fault
        self.failed: list[str] = []
        self._step = ""

    async def execute(self, command: Command) -> None:
        name = f"{self._step}: {command.purpose}"
        if self.canaries.sent_by(command) and name not in self.failed:
            self.failed.append(name)
            self.faults.at(lambda one: one is command, self.make_fault(command))
        await super().execute(command)

    async def apply_until_done(self, steps: list[Step], output: Output) -> None:
        """Apply the steps until a run succeeds; after each failure no file reveals a secret."""

        def on_progress(event: Progress) -> None:
            self._step = event.step.name
            output.progress(event)

        for _ in range(_MAX_RUNS):
            try:
                await converge.apply(self, steps, on_progress=on_progress)
            except BramleyError as error:
                output.error(error)
                assert leaks_of(self.mac.root, self.canaries) == []
            else:
                return
        raise AssertionError(f"no run has succeeded: {self.failed}")


class BuggyConnection(ModelConnection):
    """Raises an unexpected error, with the whole command in it, once at each command with a secret."""

    def __init__(self, mac: Mac, *, clock: Clock) -> None:
        super().__init__(mac, clock=clock)
        self.failed: set[str] = set()
        self.bug = Exception()

    async def execute(self, command: Command) -> None:
        if _has_secret(command) and command.purpose not in self.failed:
            self.failed.add(command.purpose)
            raise ValueError(f"{command!r} {command} {vars_of(command)}")
        await super().execute(command)

    async def try_apply(self, steps: list[Step], output: Output) -> bool:
        """Return whether a run succeeded; if not, `bug` is its error."""
        try:
            await converge.apply(self, steps, on_progress=output.progress)
        except ValueError as error:
            self.bug = error
            output.error(error)
            return False
        return True


def _has_secret(command: Command) -> bool:
    return isinstance(command, Run | Write) and any(
        isinstance(value, Secret) for value in vars_of(command).values()
    )


def vars_of(command: Command) -> dict[str, object]:
    return {each.name: getattr(command, each.name) for each in dataclasses.fields(command)}
