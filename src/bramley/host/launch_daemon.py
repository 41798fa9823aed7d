"""One launchd daemon, loaded from exactly one property list; shared by the steps that manage daemons.

launchd does not report which property list it has loaded. So a daemon with an outdated list is unloaded first and loaded last: an
interruption in between leaves a daemon that is not loaded, which the next plan detects. launchd refuses a list that others than root
may write at the next load or boot, while the daemon still runs; so owner and mode are corrected without a restart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bramley.api.names import launchd
from bramley.host.commands import (
    ROOT,
    Command,
    Probe,
    ReadFile,
    Remove,
    Run,
    RunProbe,
    Stat,
    Wait,
    Write,
)
from bramley.host.facts import FILE, Facts, RunResult

STOP_TIMEOUT = timedelta(seconds=60)
CHECK = ("plutil", "-lint", "{}")
NO_SERVICE = 113
MODE = 0o644
# launchctl: no such process, operation in progress, no such service.
UNLOADED_CODES = (0, 3, 36, NO_SERVICE)
_PID = re.compile(r"^\s*pid = ([0-9]+)$", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True)
class LaunchDaemon:
    """Keep one daemon loaded from this property list."""

    label: str
    plist: bytes

    @property
    def path(self) -> str:
        """Return the path of its property list."""
        return launchd.daemon_plist(self.label)

    def probes(self) -> list[Probe]:
        """Probe the property list, and whether the daemon is loaded."""
        return [ReadFile(self.path), Stat(self.path), job_probe(self.label)]

    def is_current(self, facts: Facts) -> bool:
        """Return whether the Mac has this property list."""
        return facts.file(ReadFile(self.path)) == self.plist

    def is_running_current(self, facts: Facts) -> bool:
        """Return whether the daemon is loaded from this property list, regardless of the list's owner and mode."""
        return self.is_loaded(facts) and self.is_current(facts)

    def is_loaded(self, facts: Facts) -> bool:
        """Return whether launchd has loaded the daemon."""
        return facts.result(job_probe(self.label)).code == 0

    def plan(self, facts: Facts, *, changes: Sequence[Command] = ()) -> Iterator[Command]:
        """Yield the commands that load it; `changes` modify its files and are executed while it does not run."""
        is_up_to_date = self.is_current(facts) and not changes
        if self.is_loaded(facts) and not is_up_to_date:
            yield from unload(self.label)
        yield from changes
        yield from self.write(facts)
        if not (self.is_loaded(facts) and is_up_to_date):
            yield from load(self.label)

    def write(self, facts: Facts) -> Iterator[Command]:
        """Yield the write of the property list, if its content, owner or mode differs."""
        if not (self.is_current(facts) and is_owned_by_root(facts, self.path)):
            yield Write(
                path=self.path,
                content=self.plist,
                purpose=f"write the job {self.label}",
                mode=MODE,
                check=CHECK,
                before=facts.file(ReadFile(self.path)),
            )

    def remove(self, facts: Facts) -> Iterator[Command]:
        """Yield the commands that remove the daemon."""
        if self.is_loaded(facts):
            yield from unload(self.label)
        if facts.file(ReadFile(self.path)) is not None:
            yield Remove(path=self.path, purpose=f"remove the job {self.label}")


def is_owned_by_root(facts: Facts, path: str) -> bool:
    """Return whether a file belongs to root and only root may write it; needs a Stat probe of the path."""
    stat = facts.stat(Stat(path))
    return stat is not None and (stat.kind, stat.owner, stat.mode) == (FILE, ROOT, MODE)


def job_probe(label: str) -> RunProbe:
    """Return the probe of a daemon: exit code 0 if it is loaded, and its state."""
    return RunProbe(("launchctl", "print", launchd.in_system(label)))


def pid(result: RunResult) -> int:
    """Return the process id of a loaded daemon; 0 if it has none."""
    match = _PID.search(result.text) if result.code == 0 else None
    return int(match[1]) if match else 0


def unload(label: str) -> Iterator[Command]:
    """Yield the commands that unload a daemon; its label stays in use until its process has exited."""
    yield Run(
        argv=("launchctl", "bootout", launchd.in_system(label)),
        purpose=f"unload the job {label}",
        as_root=True,
        accepted_codes=UNLOADED_CODES,
    )
    yield Wait(
        probe=job_probe(label),
        code=NO_SERVICE,
        purpose=f"wait until the job {label} has ended",
        timeout=STOP_TIMEOUT,
    )


def load(label: str) -> Iterator[Command]:
    """Yield the commands that load a property list; a disabled daemon is enabled first."""
    yield Run(
        argv=("launchctl", "enable", launchd.in_system(label)),
        purpose=f"enable the job {label}",
        as_root=True,
    )
    yield Run(
        argv=("launchctl", "bootstrap", "system", launchd.daemon_plist(label)),
        purpose=f"load the job {label}",
        as_root=True,
    )


def restart(label: str) -> Run:
    """Return the command that restarts the process of a loaded daemon."""
    return Run(
        argv=("launchctl", "kickstart", "-k", launchd.in_system(label)),
        purpose=f"restart the job {label}",
        as_root=True,
    )
