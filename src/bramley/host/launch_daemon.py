"""One daemon of launchd, loaded from exactly one property list; what the steps that keep daemons share.

launchd does not say which property list it has read. So what is loaded from another one goes first and comes back last: a cut in
between leaves a daemon that is not loaded, which the next plan sees. A list that is not root's alone is refused at the next load or
start of the Mac, while its daemon still runs; so it is put right, and the daemon left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bramley.api.names import launchd
from bramley.host.commands import ROOT, Command, Find, Look, LookAt, Probe, Remove, Run, Wait, Write
from bramley.host.facts import FILE, Facts, Said

ENDED_WITHIN = timedelta(seconds=60)
CHECK = ("plutil", "-lint", "{}")
NO_SERVICE = 113
MODE = 0o644
# launchctl: no such process, still ending.
_GONE = (0, 3, 36, NO_SERVICE)
_PID = re.compile(r"^\s*pid = ([0-9]+)$", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True)
class LaunchDaemon:
    """Keep one daemon loaded from this property list."""

    label: str
    plist: bytes

    @property
    def path(self) -> str:
        """Return where its property list lies."""
        return launchd.daemon_plist(self.label)

    def looks(self) -> list[Probe]:
        """Ask for the property list, and whether the daemon is loaded."""
        return [LookAt(self.path), Find(self.path), job(self.label)]

    def is_current(self, seen: Facts) -> bool:
        """Tell whether the Mac has this property list."""
        return seen.file(LookAt(self.path)) == self.plist

    def runs_on(self, seen: Facts) -> bool:
        """Tell whether the daemon is loaded from this property list, whoever may write it by now."""
        return self.is_loaded(seen) and self.is_current(seen)

    def is_loaded(self, seen: Facts) -> bool:
        """Tell whether launchd has the daemon."""
        return seen.said(job(self.label)).code == 0

    def plan(self, seen: Facts, *, changes: Sequence[Command] = ()) -> Iterator[Command]:
        """Yield what loads it; `changes` are of what it runs, and are done while it does not."""
        is_right = self.is_current(seen) and not changes
        if self.is_loaded(seen) and not is_right:
            yield from unload(self.label)
        yield from changes
        yield from self.write(seen)
        if not (self.is_loaded(seen) and is_right):
            yield from load(self.label)

    def write(self, seen: Facts) -> Iterator[Command]:
        """Yield what puts the property list there, if it is another or not root's alone."""
        if not (self.is_current(seen) and is_roots(seen, self.path)):
            yield Write(
                path=self.path,
                content=self.plist,
                purpose=f"write the job {self.label}",
                mode=MODE,
                check=CHECK,
                before=seen.file(LookAt(self.path)),
            )

    def away(self, seen: Facts) -> Iterator[Command]:
        """Yield what takes the daemon away."""
        if self.is_loaded(seen):
            yield from unload(self.label)
        if seen.file(LookAt(self.path)) is not None:
            yield Remove(path=self.path, purpose=f"remove the job {self.label}")


def is_roots(seen: Facts, path: str) -> bool:
    """Tell whether a file belongs to root, and only root may write it; asked for with Find."""
    found = seen.found(Find(path))
    return found is not None and (found.kind, found.owner, found.mode) == (FILE, ROOT, MODE)


def job(label: str) -> Look:
    """Return the question for a daemon: exit code 0 if it is loaded, and how it does."""
    return Look(("launchctl", "print", launchd.in_system(label)))


def pid(said: Said) -> int:
    """Return the process that a loaded daemon has now; 0 if none."""
    found = _PID.search(said.text) if said.code == 0 else None
    return int(found[1]) if found else 0


def unload(label: str) -> Iterator[Command]:
    """Yield what ends a daemon and lets launchd forget it; its label is taken until its process has gone."""
    yield Run(
        argv=("launchctl", "bootout", launchd.in_system(label)),
        purpose=f"end the job {label}",
        as_root=True,
        accepts=_GONE,
    )
    yield Wait(
        look=job(label),
        code=NO_SERVICE,
        purpose=f"wait until the job {label} has ended",
        within=ENDED_WITHIN,
    )


def load(label: str) -> Iterator[Command]:
    """Yield what lets launchd read a property list; a daemon that was switched off is switched on before."""
    yield Run(
        argv=("launchctl", "enable", launchd.in_system(label)),
        purpose=f"allow the job {label}",
        as_root=True,
    )
    yield Run(
        argv=("launchctl", "bootstrap", "system", launchd.daemon_plist(label)),
        purpose=f"load the job {label}",
        as_root=True,
    )


def restart(label: str) -> Run:
    """Return what gives a loaded daemon another process."""
    return Run(
        argv=("launchctl", "kickstart", "-k", launchd.in_system(label)),
        purpose=f"restart the job {label}",
        as_root=True,
    )
