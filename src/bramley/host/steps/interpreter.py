"""The agent's interpreter: one folder per version, never changed once installed, so its signature outlives the agent's releases.

A damaged interpreter is replaced by the same version; VMs keep running, and the agent is restarted afterwards. The step `agent`
removes interpreters that no release needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import agent_daemon, archive_install, drift, grammar
from bramley.host.archive_install import ArchiveInstall
from bramley.host.artifacts import Artifact
from bramley.host.commands import Command, Probe, Stat
from bramley.host.facts import Facts
from bramley.host.step import Step


@dataclass(frozen=True, slots=True)
class Interpreter(Step):
    """Install the interpreter that the agent's code was built for."""

    name: ClassVar[str] = "interpreter"
    title: ClassVar[str] = "the agent's interpreter"

    artifact: Artifact

    def __post_init__(self) -> None:
        version = grammar.FOLDER_NAME.check("version", self.artifact.version)
        grammar.require("the agent's interpreter", version)

    def desired(self) -> drift.DesiredPart:
        """Stamp the archive."""
        return drift.DesiredPart(drift.Part.INTERPRETER, {"archive": self.artifact.sha256})

    def probes(self) -> list[Probe]:
        """Probe whether the folder of this version is intact, and the running agent."""
        intact = archive_install.intact_probes(self.folder)
        return [
            Stat(host.AGENT_ROOT),
            *intact,
            *agent_daemon.RESTART_PROBES,
            *self._install.probes(),
        ]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Unpack it beside its destination, check that it runs, and rename it."""
        if archive_install.is_intact(facts, self.folder):
            yield from self._install.remove_leftovers(facts)
            return
        yield from archive_install.ensure_folder(facts, host.AGENT_ROOT)
        # Before the replacement: an agent that runs from this folder is restarted even if this run is interrupted.
        if facts.stat(Stat(self.folder, digest=True)):
            yield from agent_daemon.note_restart(facts)
        yield from self._install.install(
            facts, self.folder, version_command=("bin/python3", "--version")
        )

    @property
    def folder(self) -> str:
        """Return the folder of this version."""
        return host.agent_interpreter(self.artifact.version)

    @property
    def _install(self) -> ArchiveInstall:
        return ArchiveInstall(self.artifact, host.AGENT_INTERPRETERS, "interpreter")
