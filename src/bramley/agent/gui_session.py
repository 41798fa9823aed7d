"""The GUI session without which no VM starts: looked at before each run, and revived by restarting loginwindow.

Restarting loginwindow ends everything in the old session, VMs included, so it never happens while a VM runs, and ever more
rarely while it does not help. No signal is sent to loginwindow: after a hang-up it does not come back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.agent import programs as running
from bramley.agent.programs import Finished, Programs
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

logger = log.get(__name__)

ALIVE = "session = Aqua"
LOGINWINDOW = "system/com.apple.loginwindow"


class NoSession(errors.Unavailable):
    """There is no GUI session on this Mac, and none can be had now."""


@dataclass(frozen=True, slots=True)
class Timings:
    """How long each look, kick and login may take, and how soon another kick may follow."""

    look: timedelta = timedelta(seconds=10)
    kick: timedelta = timedelta(seconds=20)
    login: timedelta = timedelta(seconds=30)
    poll: timedelta = timedelta(seconds=1)
    again: Backoff = field(
        default_factory=lambda: Backoff(timedelta(seconds=30), timedelta(minutes=15))
    )


class Session:
    """The GUI session of one user."""

    def __init__(
        self,
        uid: int,
        programs: Programs,
        *,
        clock: Clock,
        rng: random.Random,
        runs_a_vm: Callable[[], bool],
        timings: Timings | None = None,
    ) -> None:
        # What was seen last; None before the first look.
        self.alive: bool | None = None
        self._uid = uid
        self._programs = programs
        self._clock = clock
        self._rng = rng
        self._runs_a_vm = runs_a_vm
        self._timings = timings or Timings()
        self._kicks_in_vain = 0
        self._not_before = float("-inf")
        self._looked_at = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def look(self) -> bool:
        """Tell whether the session is alive; an unanswered question counts as no."""
        domain = f"gui/{self._uid}"
        try:
            told = await self._launchctl(self._timings.look, "print", domain)
        except (errors.TimedOut, running.ProgramMissing) as error:
            logger.warning("GUI session not seen", domain=domain, error=str(error))
            self.alive = False
        else:
            self.alive = told.code == 0 and ALIVE in told.stdout
        self._looked_at = self._clock.monotonic()
        return self.alive

    async def ensure(self, *, seen_within: timedelta = timedelta()) -> None:
        """Return when the session is alive, or was seen so a moment ago; revive it if that is allowed, else raise NoSession."""
        async with self._one_at_a_time:
            if self._was_alive(seen_within) or await self.look():
                self._kicks_in_vain = 0
                return
            self._may_kick()
            await self._kick()

    def _was_alive(self, within: timedelta) -> bool:
        age = self._clock.monotonic() - self._looked_at
        return bool(self.alive) and age < within.total_seconds()

    def _may_kick(self) -> None:
        if self._runs_a_vm():
            raise NoSession(
                "the GUI session is gone, and loginwindow is not restarted while a VM runs"
            )
        left = self._not_before - self._clock.monotonic()
        if left > 0:
            raise NoSession(
                f"the GUI session is gone; loginwindow is restarted again in {left:.0f} s"
            )

    async def _kick(self) -> None:
        timings = self._timings
        self._kicks_in_vain += 1
        pause = timings.again.delay(self._kicks_in_vain, self._rng)
        self._not_before = self._clock.monotonic() + pause.total_seconds()
        logger.warning("Restarting loginwindow", tries=self._kicks_in_vain, reason="no GUI session")
        try:
            told = await self._launchctl(timings.kick, "kickstart", "-k", LOGINWINDOW)
        except (errors.TimedOut, running.ProgramMissing) as error:
            raise NoSession(f"loginwindow cannot be restarted: {error}") from error
        if told.code != 0:
            raise NoSession(f"loginwindow cannot be restarted: {told.stderr.strip()}")
        await self._wait_for_login()

    async def _wait_for_login(self) -> None:
        ends = self._clock.monotonic() + self._timings.login.total_seconds()
        while not await self.look():
            if self._clock.monotonic() >= ends:
                raise NoSession("nobody was logged in after loginwindow was restarted")
            await asyncio.sleep(self._timings.poll.total_seconds())
        self._kicks_in_vain = 0
        logger.info("GUI session is alive again")

    async def _launchctl(self, limit: timedelta, *words: str) -> Finished:
        # -n: a sudo that wants a password must fail, not wait for one.
        argv = ("sudo", "-n", "launchctl", *words)
        return await running.within(limit, self._programs, argv)
