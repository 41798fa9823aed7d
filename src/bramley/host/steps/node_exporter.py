"""node_exporter: metrics of the Mac for Prometheus, served on the tailnet only."""

from __future__ import annotations

import plistlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host, launchd
from bramley.host import archive_install, drift, scripts
from bramley.host.agent_daemon import THROTTLE_SECONDS
from bramley.host.artifacts import Artifact
from bramley.host.commands import (
    Command,
    Folder,
    Probe,
    ReadFile,
    Rename,
    Run,
    Stat,
    Stream,
    Write,
)
from bramley.host.facts import Facts
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.step import Step

_BINARY = Stat(host.NODE_EXPORTER_BINARY, digest=True)
_INCOMING = Stat(host.NODE_EXPORTER_INCOMING)
_UPLOADED = f"{_INCOMING.path}/node_exporter"
_WRAPPER = ReadFile(host.NODE_EXPORTER_WRAPPER)
_EXECUTABLE = 0o755


@dataclass(frozen=True, slots=True)
class NodeExporter(Step):
    """Keep node_exporter running."""

    name: ClassVar[str] = "node-exporter"
    title: ClassVar[str] = "metrics of the Mac"

    artifact: Artifact

    def desired(self) -> drift.DesiredPart:
        """Stamp the program, its wrapper and its job."""
        digests = {
            "binary": self.artifact.sha256,
            "wrapper": drift.digest(wrapper()),
            "job": drift.digest(DAEMON.plist),
        }
        return drift.DesiredPart(drift.Part.NODE_EXPORTER, digests)

    def probes(self) -> list[Probe]:
        """Probe both files and the job."""
        files: list[Probe] = [_BINARY, _INCOMING, _WRAPPER, Stat(_WRAPPER.path)]
        return [Stat(host.PROGRAMS), *files, *DAEMON.probes()]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Upload another version and check that it runs, then change what differs while the job is unloaded."""
        # Uploaded and run once while the old version still serves.
        if self._is_stale(facts):
            yield from self._upload()
        yield from DAEMON.plan(facts, changes=[*self._files(facts)])

    def _files(self, facts: Facts) -> Iterator[Command]:
        yield from archive_install.ensure_exists(facts, host.PROGRAMS)
        if self._is_stale(facts):
            purpose = f"use node_exporter {self.artifact.version}"
            yield Rename(path=_UPLOADED, to=host.NODE_EXPORTER_BINARY, purpose=purpose)
        if self._is_stale(facts) or facts.stat(_INCOMING):
            yield archive_install.remove_unneeded(_INCOMING.path)
        stat = facts.stat(Stat(_WRAPPER.path))
        if facts.file(_WRAPPER) != wrapper() or stat is None or stat.mode != _EXECUTABLE:
            yield Write(
                path=host.NODE_EXPORTER_WRAPPER,
                content=wrapper(),
                purpose="write the wrapper of node_exporter",
                mode=_EXECUTABLE,
                before=facts.file(_WRAPPER),
            )

    def _upload(self) -> Iterator[Command]:
        name = f"node_exporter {self.artifact.version}"
        yield Folder(path=_INCOMING.path, purpose=f"create a folder for {name}")
        yield Stream(
            artifact=self.artifact, path=_UPLOADED, purpose=f"upload {name}", mode=_EXECUTABLE
        )
        yield Run(argv=(_UPLOADED, "--version"), purpose=f"check that {name} runs")

    def _is_stale(self, facts: Facts) -> bool:
        stat = facts.stat(_BINARY)
        return stat is None or (stat.digest, stat.mode) != (self.artifact.sha256, _EXECUTABLE)


def wrapper() -> bytes:
    """Return the script that finds the tailnet address and starts node_exporter on it."""
    return scripts.text(
        "node_exporter_wrapper",
        tailscale=host.TAILSCALE_BINARY,
        node_exporter=host.NODE_EXPORTER_BINARY,
        port=host.NODE_EXPORTER_PORT,
    )


DAEMON = LaunchDaemon(
    launchd.NODE_EXPORTER,
    plistlib.dumps(
        {
            "Label": launchd.NODE_EXPORTER,
            "ProgramArguments": [host.NODE_EXPORTER_WRAPPER],
            "RunAtLoad": True,
            "KeepAlive": True,
            "ThrottleInterval": THROTTLE_SECONDS,
            "StandardOutPath": host.NODE_EXPORTER_LOG,
            "StandardErrorPath": host.NODE_EXPORTER_LOG,
        },
        sort_keys=False,
    ),
)
