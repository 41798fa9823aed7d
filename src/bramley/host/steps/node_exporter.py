"""The Mac's own figures for Prometheus, served on the tailnet only."""

from __future__ import annotations

import plistlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host, launchd
from bramley.host import drift, scripts, unpacking
from bramley.host.artifacts import Artifact
from bramley.host.commands import (
    Command,
    Find,
    Folder,
    LookAt,
    Probe,
    Remove,
    Rename,
    Run,
    Stream,
    Write,
)
from bramley.host.facts import Facts
from bramley.host.launch_daemon import LaunchDaemon
from bramley.host.plist import THROTTLE_SECONDS

_BINARY = Find(host.NODE_EXPORTER_BINARY, digest=True)
_INCOMING = Find(host.NODE_EXPORTER_INCOMING)
_BROUGHT = f"{_INCOMING.path}/node_exporter"
_WRAPPER = LookAt(host.NODE_EXPORTER_WRAPPER)
_EXECUTABLE = 0o755


@dataclass(frozen=True, slots=True)
class NodeExporter:
    """Keep node_exporter running."""

    name: ClassVar[str] = "node-exporter"
    title: ClassVar[str] = "the Mac's figures"

    artifact: Artifact

    def wanted(self) -> drift.Wanted:
        """Stamp the program, what starts it, and its job."""
        digests = {
            "binary": self.artifact.sha256,
            "wrapper": drift.digest(wrapper()),
            "job": drift.digest(DAEMON.plist),
        }
        return drift.Wanted(drift.Part.NODE_EXPORTER, digests)

    def looks(self) -> list[Probe]:
        """Ask for both files and the job."""
        files: list[Probe] = [_BINARY, _INCOMING, _WRAPPER, Find(_WRAPPER.path)]
        return [Find(host.PROGRAMS), *files, *DAEMON.looks()]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Bring another one and let it answer, then change what differs while none runs."""
        if self._is_stale(seen):
            yield from self._bring()
        yield from DAEMON.plan(seen, changes=[*self._files(seen)])

    def _files(self, seen: Facts) -> Iterator[Command]:
        yield from unpacking.present(seen, host.PROGRAMS)
        if self._is_stale(seen):
            purpose = f"use node_exporter {self.artifact.version}"
            yield Rename(path=_BROUGHT, to=host.NODE_EXPORTER_BINARY, purpose=purpose)
        if self._is_stale(seen) or seen.found(_INCOMING):
            yield _clear()
        starter = seen.found(Find(_WRAPPER.path))
        if seen.file(_WRAPPER) != wrapper() or starter is None or starter.mode != _EXECUTABLE:
            yield Write(
                path=host.NODE_EXPORTER_WRAPPER,
                content=wrapper(),
                purpose="write what starts node_exporter",
                mode=_EXECUTABLE,
                before=seen.file(_WRAPPER),
            )

    def _bring(self) -> Iterator[Command]:
        name = f"node_exporter {self.artifact.version}"
        yield Folder(path=_INCOMING.path, purpose=f"make a folder for {name}")
        yield Stream(
            artifact=self.artifact, path=_BROUGHT, purpose=f"bring {name}", mode=_EXECUTABLE
        )
        yield Run(argv=(_BROUGHT, "--version"), purpose=f"let {name} answer before it is used")

    def _is_stale(self, seen: Facts) -> bool:
        found = seen.found(_BINARY)
        return found is None or (found.digest, found.mode) != (self.artifact.sha256, _EXECUTABLE)


def _clear() -> Remove:
    return Remove(path=_INCOMING.path, purpose=f"remove {_INCOMING.path}, which is needed no more")


def wrapper() -> bytes:
    """Return the script that finds the tailnet's address and starts node_exporter on it."""
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
