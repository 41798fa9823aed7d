"""The GUI session that VMs need: checked before each start of a VM, and restored by restarting loginwindow.

Restarting loginwindow ends all processes of the old session, VMs included, so it must never happen while a VM runs, nor while it is
unknown whether there is a session; while it does not help it is repeated with backoff. loginwindow is restarted by launchctl and not
by a signal: after SIGHUP it does not come back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta

from bramley.agent.programs import ProgramMissing, ProgramResult, Programs, run_with_timeout
from bramley.api.names import launchd
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

logger = log.get(__name__)

LOGINWINDOW = launchd.in_system(launchd.LOGINWINDOW)


class NoSession(errors.Unavailable):
    """There is no GUI session on this Mac, and none can be started now."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Time limits of check, restart and login, and the backoff of restarts."""

    check: timedelta = timedelta(seconds=10)
    restart: timedelta = timedelta(seconds=20)
    login: timedelta = timedelta(seconds=30)
    poll: timedelta = timedelta(seconds=1)
    backoff: Backoff = field(
        default_factory=lambda: Backoff(timedelta(seconds=30), timedelta(minutes=15))
    )


@dataclass(slots=True, eq=False)
class GuiSession:
    """The GUI session of one user; `is_alive` is the result of the last check: None if it is unknown, and before the first one."""

    uid: int
    programs: Programs
    _: KW_ONLY
    clock: Clock
    rng: random.Random
    has_running_vm: Callable[[], bool]
    timings: Timings = field(default_factory=Timings)
    is_alive: bool | None = None
    # Why the last check has no result.
    _check_error: str = ""
    _failed_restarts: int = 0
    _restart_not_before: float = float("-inf")
    _checked_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def check(self) -> bool:
        """Return whether the session is alive; False also if launchctl did not answer that."""
        domain = launchd.gui(self.uid)
        try:
            # launchctl shows the domain of a session to root only.
            result = await self._launchctl(self.timings.check, "print", domain)
        except (errors.TimedOut, ProgramMissing) as error:
            self.is_alive, self._check_error = None, str(error)
        else:
            self.is_alive = launchd.has_gui_session(result.code, result.stdout + result.stderr)
            output = result.stderr.strip() or "it printed no session"
            self._check_error = f"launchctl print {domain} ended with code {result.code}: {output}"
        if self.is_alive is None:
            logger.warning("GUI session check failed", domain=domain, error=self._check_error)
        self._checked_at = self.clock.monotonic()
        return bool(self.is_alive)

    async def ensure(self, *, max_age: timedelta = timedelta()) -> None:
        """Return when the session is alive, or was within `max_age`; restart it if that is allowed, else raise NoSession."""
        async with self._lock:
            if self._was_alive(max_age) or await self.check():
                self._failed_restarts = 0
                return
            # After the check, which takes a while: a VM may have started meanwhile.
            self._check_restart_allowed()
            await self._restart_loginwindow()

    def _was_alive(self, within: timedelta) -> bool:
        age = self.clock.monotonic() - self._checked_at
        return bool(self.is_alive) and age < within.total_seconds()

    def _check_restart_allowed(self) -> None:
        if self.is_alive is None:
            raise NoSession(
                f"the GUI session cannot be checked, so loginwindow is not restarted, which would end it: {self._check_error}"
            )
        if self.has_running_vm():
            raise NoSession(
                "the GUI session is gone, and loginwindow is not restarted while a VM runs"
            )
        remaining = self._restart_not_before - self.clock.monotonic()
        if remaining > 0:
            raise NoSession(
                f"the GUI session is gone; loginwindow is restarted again in {remaining:.0f} s"
            )

    async def _restart_loginwindow(self) -> None:
        timings = self.timings
        self._failed_restarts += 1
        delay = timings.backoff.delay(self._failed_restarts, self.rng)
        # Before the attempt, so that one that hangs or is cancelled counts for the backoff.
        self._restart_not_before = self.clock.monotonic() + delay.total_seconds()
        logger.warning(
            "Restarting loginwindow", tries=self._failed_restarts, reason="no GUI session"
        )
        try:
            result = await self._launchctl(timings.restart, "kickstart", "-k", LOGINWINDOW)
        except (errors.TimedOut, ProgramMissing) as error:
            raise NoSession(f"loginwindow cannot be restarted: {error}") from error
        if result.code != 0:
            raise NoSession(f"loginwindow cannot be restarted: {result.stderr.strip()}")
        await self._wait_for_login()

    async def _wait_for_login(self) -> None:
        deadline = self.clock.monotonic() + self.timings.login.total_seconds()
        while not await self.check():
            if self.clock.monotonic() >= deadline:
                raise NoSession("no user was logged in after the restart of loginwindow")
            await asyncio.sleep(self.timings.poll.total_seconds())
        self._failed_restarts = 0
        logger.info("GUI session is alive again")

    async def _launchctl(self, limit: timedelta, *arguments: str) -> ProgramResult:
        # -n: sudo must fail instead of waiting for a password.
        argv = ("sudo", "-n", "launchctl", *arguments)
        return await run_with_timeout(limit, self.programs, argv)
