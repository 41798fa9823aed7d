"""Logs that do not grow without end: every few minutes those that are too large are emptied in place, after a copy was made.

macOS' own newsyslog renames logs, and launchd goes on writing into the renamed one; it opens them for appending, so a log that is
emptied goes on from its beginning. The lines of the moment between copy and emptying are lost; the agent's story of what it did is
in its ledger and in Events. VMs' own logs are bounded by the agent.
"""

from __future__ import annotations

import plistlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host, launchd
from bramley.host import drift, scripts, unpacking
from bramley.host.commands import Command, Find, LookAt, Probe, Write
from bramley.host.facts import Facts
from bramley.host.launch_daemon import LaunchDaemon

MOST_BYTES = 64 * 1024 * 1024
EVERY_SECONDS = 600
LOGS = (
    host.AGENT_LOG,
    host.TAILSCALED_LOG,
    host.NODE_EXPORTER_LOG,
    host.PF_BOOT_LOG,
    host.LOG_ROTATION_LOG,
)
SCRIPT = scripts.text("rotate_logs")

_EXECUTABLE = 0o755
_SCRIPT = LookAt(host.LOG_ROTATION)


@dataclass(frozen=True, slots=True)
class LogRotation:
    """Keep the logs of our jobs bounded."""

    name: ClassVar[str] = "log-rotation"
    title: ClassVar[str] = "logs that do not fill the disk"

    def wanted(self) -> drift.Wanted:
        """Stamp the script and its job."""
        digests = {"script": drift.digest(SCRIPT), "job": drift.digest(DAEMON.plist)}
        return drift.Wanted(drift.Part.LOG_ROTATION, digests)

    def looks(self) -> list[Probe]:
        """Ask for the script and its job."""
        return [Find(host.PROGRAMS), _SCRIPT, Find(_SCRIPT.path), *DAEMON.looks()]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Change what differs while it does not run."""
        yield from DAEMON.plan(seen, changes=[*self._script(seen)])

    def _script(self, seen: Facts) -> Iterator[Command]:
        yield from unpacking.present(seen, host.PROGRAMS)
        found = seen.found(Find(_SCRIPT.path))
        if seen.file(_SCRIPT) != SCRIPT or found is None or found.mode != _EXECUTABLE:
            yield Write(
                path=host.LOG_ROTATION,
                content=SCRIPT,
                purpose="write what empties logs",
                mode=_EXECUTABLE,
                before=seen.file(_SCRIPT),
            )


DAEMON = LaunchDaemon(
    launchd.LOG_ROTATION,
    plistlib.dumps(
        {
            "Label": launchd.LOG_ROTATION,
            "ProgramArguments": [host.LOG_ROTATION, str(MOST_BYTES), *LOGS],
            "RunAtLoad": True,
            "StartInterval": EVERY_SECONDS,
            "StandardErrorPath": host.LOG_ROTATION_LOG,
        },
        sort_keys=False,
    ),
)
