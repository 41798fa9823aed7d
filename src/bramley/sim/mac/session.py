"""The GUI session of a simulated Mac, and the commands that ask for it: `launchctl` and `killall`.

A VM needs a logged-in session of its user. Kicking loginwindow brings one back where automatic login is set up, and ends all
that runs in the old one, VMs included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.sim.mac import loginwindow
from bramley.sim.mac.calls import Call
from bramley.sim.mac.processes import Process


@dataclass(slots=True)
class Session:
    """Whether somebody is logged in at the console; `changed` hears of each login and each end, `kicked` of each kick."""

    changed: Callable[[bool], None]
    kicked: Callable[[], None]
    is_alive: bool = True
    # Whether a new loginwindow logs the user in by itself, and how long that takes.
    logs_in: bool = True
    login_takes: timedelta = timedelta(seconds=4)
    # What was done to loginwindow, in order.
    kicks: list[str] = field(default_factory=list)

    def end(self) -> None:
        """Lose the session without a word; VMs that run go on, new ones do not start."""
        self._become(alive=False)

    def log_in(self) -> None:
        """Log the user in, if that works by itself; a Mac that boots does so."""
        if self.logs_in and not self.is_alive:
            self._become(alive=True)

    async def launchctl(self, _: Process, call: Call) -> int:
        """Answer `launchctl print gui/…` and `launchctl kickstart -k system/com.apple.loginwindow`."""
        said = loginwindow.launchctl(call.argv[1:], is_alive=self.is_alive, as_root=call.as_root)
        if said.kicks:
            self.kicks.append(" ".join(call.argv))
            self._become(alive=False)
            self.kicked()
            asyncio.get_running_loop().call_later(self.login_takes.total_seconds(), self.log_in)
        for line in said.out:
            call.out(line)
        for line in said.err:
            call.err(line)
        return said.code

    async def killall(self, _: Process, call: Call) -> int:
        """Take the signal and do nothing: loginwindow ignores a hang-up, and no session comes of it."""
        self.kicks.append(" ".join(call.argv))
        return 0

    def _become(self, *, alive: bool) -> None:
        self.is_alive = alive
        self.changed(alive)
