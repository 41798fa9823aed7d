"""The requirements of a Mac, checked before any change; all unmet ones are reported together, each with a remedy.

The password and FileVault are checked by the steps that need them, so that a run without these steps is not refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from bramley.api.names import launchd
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import UnsupportedHost
from bramley.host import loginwindow
from bramley.host.commands import Command, Probe, RunProbe, Stat
from bramley.host.facts import Facts
from bramley.host.step import Step

VERSION = RunProbe(("sw_vers", "-productVersion"))
ARCHITECTURE = RunProbe(("uname", "-m"))
DISK = RunProbe(("df", "-Pk", "/"))
TIME = RunProbe(("date", "-u", "+%s"))
AGENT_PLIST = Stat(launchd.daemon_plist(launchd.AGENT))
_APPLE_SILICON = "arm64"
_AVAILABLE = 3
_KIB, _GB = 1024, 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The requirements of a Mac."""

    # Tart runs from macOS 13 on, whose Virtualization framework it is built for.
    oldest_macos: tuple[int, int] = (13, 0)
    # Space for one image and a clone of it; a Mac in use may be full of them and needs space for our files only.
    free_gb_at_first: int = 60
    free_gb: int = 2
    # A token or certificate that was just issued must not lie in the Mac's future.
    skew: timedelta = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Preconditions(Step):
    """Refuse a Mac that cannot become a Node."""

    name: ClassVar[str] = "preconditions"
    title: ClassVar[str] = "preconditions"

    user: str
    clock: Clock = field(default_factory=SystemClock)
    limits: Limits = field(default_factory=Limits)

    def probes(self) -> list[Probe]:
        """Probe the system, the free disk space, the time and the user."""
        return [VERSION, ARCHITECTURE, DISK, TIME, AGENT_PLIST, loginwindow.uid_probe(self.user)]

    def follow_up_probes(self, facts: Facts) -> list[Probe]:
        """Probe the time again if it seems wrong: the first answer is as old as the other probes of the round trip took."""
        return [TIME] if self._time(facts) else []

    def check_supported(self, facts: Facts) -> None:
        """Refuse a Mac with all unmet requirements."""
        checks: tuple[Callable[[Facts], str], ...] = (
            self._version,
            _architecture,
            self._disk,
            self._time,
            self._user,
        )
        problems = [problem for check in checks if (problem := check(facts))]
        if problems:
            raise UnsupportedHost("; ".join(problems))

    def plan(self, facts: Facts) -> Iterator[Command]:  # noqa: ARG002 - part of the protocol
        """Yield no commands."""
        yield from ()

    def _version(self, facts: Facts) -> str:
        text, version = facts.result(VERSION).text, version_of(facts)
        oldest = ".".join(str(number) for number in self.limits.oldest_macos)
        if version is None:
            return f"the version of macOS is unknown ({text[:40] or 'sw_vers printed nothing'}); this must be a Mac with macOS {oldest} or newer"
        if version < self.limits.oldest_macos:
            return f"macOS {text} is older than {oldest}, the first that Tart runs on; update or reinstall it"
        return ""

    def _disk(self, facts: Facts) -> str:
        is_new = facts.stat(AGENT_PLIST) is None
        needed = self.limits.free_gb_at_first if is_new else self.limits.free_gb
        free = free_bytes(facts)
        if free is None:
            return (
                f"the free disk space is unknown (`{' '.join(DISK.argv)}` printed nothing usable)"
            )
        free_gb = free / _GB
        if free_gb < needed:
            return f"{free_gb:.1f} GB are free on the disk and {needed} GB are needed; remove unused files"
        return ""

    def _time(self, facts: Facts) -> str:
        seconds = facts.result(TIME).text
        if not seconds.isdecimal():
            return "the time of the Mac is unknown (`date -u +%s` printed nothing usable)"
        ahead = int(seconds) - self.clock.now().timestamp()
        if abs(ahead) > self.limits.skew.total_seconds():
            direction = "ahead" if ahead > 0 else "behind"
            return (
                f"the clock of the Mac is {abs(ahead):.0f} s {direction}; set it with `sudo sntp -sS time.apple.com` and enable "
                "automatic time"
            )
        return ""

    def _user(self, facts: Facts) -> str:
        if loginwindow.uid_of(self.user, facts) is None:
            return f"there is no user {self.user} on this Mac; create it, or configure another user"
        return ""


def free_bytes(facts: Facts) -> int | None:
    """Return the free disk space; None if unknown."""
    lines = facts.result(DISK).text.splitlines()
    fields = lines[-1].split() if lines else []
    free = fields[_AVAILABLE] if len(fields) > _AVAILABLE else ""
    return int(free) * _KIB if free.isdecimal() else None


def version_of(facts: Facts) -> tuple[int, int] | None:
    """Return the first two numbers of the version of macOS; None if unknown. Needs the probe `VERSION`."""
    major, _, rest = facts.result(VERSION).text.partition(".")
    minor = rest.partition(".")[0] or "0"
    is_known = major.isdecimal() and minor.isdecimal()
    return (int(major), int(minor)) if is_known else None


def _architecture(facts: Facts) -> str:
    architecture = facts.result(ARCHITECTURE).text
    if architecture != _APPLE_SILICON:
        return f"this Mac has no Apple silicon ({architecture[:40] or 'uname printed nothing'}), which macOS VMs need; use another Mac"
    return ""
