"""A line on which every command that carries a secret goes wrong once, and a bug that knows all about such a command."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable

from bramley.base.clock import Clock
from bramley.base.errors import BramleyError
from bramley.base.secret import Secret
from bramley.host import converge
from bramley.host.commands import Command, Run, Write
from bramley.host.converge import Progress
from bramley.host.step import Step
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Cut, Fail, Fault, Hang, Moment
from bramley.sim.macos.mac import Mac
from tests.scenarios.host_secrets.canaries import Canaries, given_to
from tests.scenarios.host_secrets.macs import Heard, leaks_of

Wrong = Callable[[Command], Fault]
_ENOUGH = 20


def repeats_its_input(command: Command) -> Fault:
    """Fail as a program does that repeats what it was given, as it was meant and as it came on the line."""
    given = [text for text in given_to(command) if text]
    said = [each for text in given for each in (text, base64.b64encode(text))]
    return Fail(code=1, said=b" ".join(said).decode("utf-8", "replace"))


def is_cut(_: Command) -> Fault:
    return Cut(Moment.UNANSWERED)


def hangs(_: Command) -> Fault:
    return Hang()


class Failing(ModelConnection):
    """Every carrier of a secret goes wrong at the first time; `wrong` is what they were for."""

    def __init__(self, mac: Mac, *, clock: Clock, canaries: Canaries, goes_wrong: Wrong) -> None:
        super().__init__(mac, clock=clock)
        self.canaries = canaries
        self.goes_wrong = goes_wrong
        self.wrong: list[str] = []
        self._step = ""

    async def do(self, command: Command) -> None:
        name = f"{self._step}: {command.purpose}"
        if self.canaries.carried_by(command) and name not in self.wrong:
            self.wrong.append(name)
            self.faults.at(lambda one: one is command, self.goes_wrong(command))
        await super().do(command)

    async def become(self, wanted: list[Step], heard: Heard) -> None:
        """Run again and again, until nothing more goes wrong; nothing lies open in between."""

        def on_progress(news: Progress) -> None:
            self._step = news.step.name
            heard.progress(news)

        for _ in range(_ENOUGH):
            try:
                await converge.apply(self, wanted, on_progress=hear)
            except BramleyError as error:
                heard.error(error)
                assert leaks_of(self.mac.root, self.canaries) == []
            else:
                return
        raise AssertionError(f"it does not come to an end: {self.wrong}")


class Buggy(ModelConnection):
    """A bug that strikes once at each command with a secret, and puts all that it knows into its error."""

    def __init__(self, mac: Mac, *, clock: Clock) -> None:
        super().__init__(mac, clock=clock)
        self.struck: set[str] = set()
        self.bug = Exception()

    async def do(self, command: Command) -> None:
        if _has_secret(command) and command.purpose not in self.struck:
            self.struck.add(command.purpose)
            raise ValueError(f"{command!r} {command} {vars_of(command)}")
        await super().do(command)

    async def becomes(self, wanted: list[Step], heard: Heard) -> bool:
        """Tell whether a run came to its end; if not, `bug` is why."""
        try:
            await converge.apply(self, wanted, on_progress=heard.progress)
        except ValueError as error:
            self.bug = error
            heard.error(error)
            return False
        return True


def _has_secret(command: Command) -> bool:
    return isinstance(command, Run | Write) and any(
        isinstance(value, Secret) for value in vars_of(command).values()
    )


def vars_of(command: Command) -> dict[str, object]:
    return {each.name: getattr(command, each.name) for each in dataclasses.fields(command)}
