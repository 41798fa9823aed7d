"""What a Mac must be before anything is done to it; all that is wrong is told at once, each with what to do.

The password and FileVault are looked at by the steps that need them, so that who leaves these out is not stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from bramley.api.names import launchd
from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import UnsupportedHost
from bramley.host import login
from bramley.host.commands import Command, Find, Look, Probe
from bramley.host.facts import Facts

VERSION = Look(("sw_vers", "-productVersion"))
ARCHITECTURE = Look(("uname", "-m"))
DISK = Look(("df", "-Pk", "/"))
TIME = Look(("date", "-u", "+%s"))
AGENT = Find(launchd.daemon_plist(launchd.AGENT))
_APPLE_SILICON = "arm64"
_AVAILABLE = 3
_KIB, _GB = 1024, 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is asked of a Mac."""

    # Tart runs from macOS 13 on, whose Virtualization framework it is built for.
    oldest_macos: tuple[int, int] = (13, 0)
    # Room for one image and a clone of it; a Mac that is in use may be full of them, and needs room for our files only.
    free_gb_at_first: int = 60
    free_gb: int = 2
    # A token or a certificate that was just made must not lie in the Mac's future.
    skew: timedelta = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Refuse a Mac that cannot become a Node."""

    name: ClassVar[str] = "preconditions"
    title: ClassVar[str] = "preconditions"

    user: str
    clock: Clock = field(default_factory=SystemClock)
    limits: Limits = field(default_factory=Limits)

    def wanted(self) -> None:
        """Stamp nothing: nothing is applied."""

    def looks(self) -> list[Probe]:
        """Ask for the system, the room on the disk, the time and the user."""
        return [VERSION, ARCHITECTURE, DISK, TIME, AGENT, login.uid_look(self.user)]

    def looks_further(self, seen: Facts) -> list[Probe]:
        """Ask for the time again where it seems wrong: the first answer is as old as all other questions took."""
        return [TIME] if self._time(seen) else []

    def refuse(self, seen: Facts) -> None:
        """Refuse with everything that is wrong."""
        checks: tuple[Callable[[Facts], str], ...] = (
            self._version,
            _architecture,
            self._disk,
            self._time,
            self._user,
        )
        wrong = [told for check in checks if (told := check(seen))]
        if wrong:
            raise UnsupportedHost("; ".join(wrong))

    def plan(self, seen: Facts) -> Iterator[Command]:  # noqa: ARG002 - part of the seam
        """Do nothing."""
        yield from ()

    def _version(self, seen: Facts) -> str:
        told, version = seen.said(VERSION).text, version_of(seen)
        oldest = ".".join(str(number) for number in self.limits.oldest_macos)
        if version is None:
            return f"the version of macOS is not known ({told[:40] or 'sw_vers said nothing'}); this must be a Mac with macOS {oldest} or newer"
        if version < self.limits.oldest_macos:
            return f"macOS {told} is older than {oldest}, the first that Tart runs on; update or reinstall it"
        return ""

    def _disk(self, seen: Facts) -> str:
        is_new = seen.found(AGENT) is None
        least = self.limits.free_gb_at_first if is_new else self.limits.free_gb
        free = free_bytes(seen)
        if free is None:
            return f"the free room on the disk is not known (`{' '.join(DISK.argv)}` said nothing of use)"
        free_gb = free / _GB
        if free_gb < least:
            return f"{free_gb:.1f} GB are free on the disk and {least} GB are needed; remove what is not used"
        return ""

    def _time(self, seen: Facts) -> str:
        told = seen.said(TIME).text
        if not told.isdecimal():
            return "the time of the Mac is not known (`date -u +%s` said nothing of use)"
        ahead = int(told) - self.clock.now().timestamp()
        if abs(ahead) > self.limits.skew.total_seconds():
            way = "ahead" if ahead > 0 else "behind"
            return (
                f"the clock of the Mac is {abs(ahead):.0f} s {way}; set it with `sudo sntp -sS time.apple.com` and let it be set "
                "automatically"
            )
        return ""

    def _user(self, seen: Facts) -> str:
        if login.uid_of(self.user, seen) is None:
            return f"there is no user {self.user} on this Mac; make it, or name another"
        return ""


def free_bytes(seen: Facts) -> int | None:
    """Return how much room the disk has; None if that is not known."""
    lines = seen.said(DISK).text.splitlines()
    fields = lines[-1].split() if lines else []
    free = fields[_AVAILABLE] if len(fields) > _AVAILABLE else ""
    return int(free) * _KIB if free.isdecimal() else None


def version_of(seen: Facts) -> tuple[int, int] | None:
    """Return the version of macOS, its first two numbers; None if it is not known. Asked for with `VERSION`."""
    major, _, rest = seen.said(VERSION).text.partition(".")
    minor = rest.partition(".")[0] or "0"
    is_known = major.isdecimal() and minor.isdecimal()
    return (int(major), int(minor)) if is_known else None


def _architecture(seen: Facts) -> str:
    told = seen.said(ARCHITECTURE).text
    if told != _APPLE_SILICON:
        return f"this is no Mac with Apple silicon ({told[:40] or 'uname said nothing'}); VMs of macOS need one"
    return ""
