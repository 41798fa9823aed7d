"""Log rotation: every few minutes, logs that are too large are copied and then truncated in place.

macOS' own newsyslog renames logs, and launchd keeps writing to the renamed file; launchd opens logs for appending, so a truncated log
continues at its beginning. Lines written between copy and truncation are lost; the agent's actions are also in its ledger and in
Events. The agent bounds the logs of VMs itself.
"""

from __future__ import annotations

import plistlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host, launchd
from bramley.host import archive_install, drift, scripts
from bramley.host.commands import Command, Probe, ReadFile, Stat, Write
from bramley.host.facts import Facts
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.step import Step

MAX_BYTES = 64 * 1024 * 1024
INTERVAL_SECONDS = 600
LOGS = (
    host.AGENT_LOG,
    host.TAILSCALED_LOG,
    host.NODE_EXPORTER_LOG,
    host.PF_BOOT_LOG,
    host.LOG_ROTATION_LOG,
)
SCRIPT = scripts.text("rotate_logs")

_EXECUTABLE = 0o755
_SCRIPT = ReadFile(host.LOG_ROTATION)


@dataclass(frozen=True, slots=True)
class LogRotation(Step):
    """Keep the logs of our jobs bounded."""

    name: ClassVar[str] = "log-rotation"
    title: ClassVar[str] = "log rotation"

    def desired(self) -> drift.DesiredPart:
        """Stamp the script and its job."""
        digests = {"script": drift.digest(SCRIPT), "job": drift.digest(DAEMON.plist)}
        return drift.DesiredPart(drift.Part.LOG_ROTATION, digests)

    def probes(self) -> list[Probe]:
        """Probe the script and its job."""
        return [Stat(host.PROGRAMS), _SCRIPT, Stat(_SCRIPT.path), *DAEMON.probes()]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Change what differs while the job is unloaded."""
        yield from DAEMON.plan(facts, changes=[*self._script(facts)])

    def _script(self, facts: Facts) -> Iterator[Command]:
        yield from archive_install.ensure_exists(facts, host.PROGRAMS)
        stat = facts.stat(Stat(_SCRIPT.path))
        if facts.file(_SCRIPT) != SCRIPT or stat is None or stat.mode != _EXECUTABLE:
            yield Write(
                path=host.LOG_ROTATION,
                content=SCRIPT,
                purpose="write the log rotation script",
                mode=_EXECUTABLE,
                before=facts.file(_SCRIPT),
            )


DAEMON = LaunchDaemon(
    launchd.LOG_ROTATION,
    plistlib.dumps(
        {
            "Label": launchd.LOG_ROTATION,
            "ProgramArguments": [host.LOG_ROTATION, str(MAX_BYTES), *LOGS],
            "RunAtLoad": True,
            "StartInterval": INTERVAL_SECONDS,
            "StandardErrorPath": host.LOG_ROTATION_LOG,
        },
        sort_keys=False,
    ),
)
