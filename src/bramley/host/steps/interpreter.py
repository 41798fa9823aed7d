"""The agent's interpreter: one folder per version, never changed once it is there, so its signature outlives the agent's releases.

One that somebody has damaged is replaced by the same one; VMs go on, and the agent is restarted once it is there. Those that no release needs any more go with the release that did, see the agent's step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from bramley.api.names import host
from bramley.host import drift, grammar, restarting, unpacking
from bramley.host.artifacts import Artifact
from bramley.host.commands import Command, Find, Probe
from bramley.host.facts import Facts
from bramley.host.unpacking import Unpacking


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Bring the interpreter that the agent's code was built for."""

    name: ClassVar[str] = "interpreter"
    title: ClassVar[str] = "the agent's interpreter"

    artifact: Artifact

    def __post_init__(self) -> None:
        version = grammar.FOLDER_NAME.check("version", self.artifact.version)
        grammar.require("the agent's interpreter", version)

    def wanted(self) -> drift.Wanted:
        """Stamp the archive."""
        return drift.Wanted(drift.Part.INTERPRETER, {"archive": self.artifact.sha256})

    def looks(self) -> list[Probe]:
        """Ask whether the folder of this version is whole, and for the running agent."""
        whole = unpacking.whole_looks(self.folder)
        return [Find(host.AGENT_ROOT), *whole, *restarting.LOOKS, *self._unpacking.looks()]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Unpack it beside its place, let it answer, and name it by its version."""
        if unpacking.is_whole(seen, self.folder):
            yield from self._unpacking.clear_left(seen)
            return
        yield from unpacking.folder(seen, host.AGENT_ROOT)
        if seen.found(Find(self.folder, digest=True)):
            yield from restarting.note(seen)
        yield from self._unpacking.install(seen, self.folder, answer=("bin/python3", "--version"))

    @property
    def folder(self) -> str:
        """Return where this version lies."""
        return host.agent_interpreter(self.artifact.version)

    @property
    def _unpacking(self) -> Unpacking:
        return Unpacking(self.artifact, host.AGENT_INTERPRETERS, "interpreter")
