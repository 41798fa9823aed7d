"""The agent's code: one folder per release, a link to the current one, and the previous one kept.

A release gets its final name only after it has been run, and the link is switched only then. The running agent is not changed here:
the required restart is recorded, and the step `agent-job` does it; VMs keep running. A damaged release is replaced by the same
release in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from bramley.api.names import host
from bramley.host import agent_archive, agent_daemon, archive_install, drift, grammar
from bramley.host.archive_install import ArchiveInstall
from bramley.host.artifacts import Artifact
from bramley.host.commands import Command, Link, Probe, ReadFile, RunProbe, Stat
from bramley.host.facts import Facts
from bramley.host.step import Step

_CURRENT = Stat(host.AGENT_CURRENT)
_PROGRAM = host.AGENT_CURRENT_BINARY.removeprefix(f"{host.AGENT_CURRENT}/")
_PREVIOUS = Stat(host.AGENT_PREVIOUS)
_BINARY = Stat(host.AGENT_BINARY)
_RELEASES = RunProbe(("ls", "-1", host.AGENT_ROOT))
_INTERPRETERS = RunProbe(("ls", "-1", host.AGENT_INTERPRETERS))


class _Manifest(msgspec.Struct):
    interpreter: str


@dataclass(frozen=True, slots=True)
class Agent(Step):
    """Install a release of the agent's code and make it the current one; `interpreter` is the version it needs."""

    name: ClassVar[str] = "agent"
    title: ClassVar[str] = "the agent's code"

    artifact: Artifact
    interpreter: str = ""

    def __post_init__(self) -> None:
        version = grammar.FOLDER_NAME.check("version", self.artifact.version)
        grammar.require("the agent", version)

    def desired(self) -> drift.DesiredPart:
        """Stamp the archive."""
        return drift.DesiredPart(drift.Part.AGENT, {"archive": self.artifact.sha256})

    def probes(self) -> list[Probe]:
        """Probe this release, the links, all other releases, and the running agent."""
        links = [_CURRENT, _PREVIOUS, _BINARY, Stat(host.PROGRAMS)]
        manifests = [_manifest(link) for link in (host.AGENT_CURRENT, host.AGENT_PREVIOUS)]
        lists = [_RELEASES, _INTERPRETERS, *archive_install.intact_probes(self.folder)]
        return [*links, *lists, *manifests, *agent_daemon.RESTART_PROBES, *self._install.probes()]

    def plan(self, facts: Facts) -> Iterator[Command]:
        """Install the release, switch to it, and remove those that are neither current nor previous."""
        if not archive_install.is_intact(facts, self.folder):
            yield from self._install_release(facts)
        else:
            yield from self._install.remove_leftovers(facts)
        is_linked = _target(facts, _BINARY) == host.AGENT_CURRENT_BINARY
        if self._is_not_current(facts) or not is_linked:
            yield from agent_daemon.note_restart(facts)
        if self._is_not_current(facts):
            yield from self._switch(facts)
        if not is_linked:
            yield from archive_install.ensure_exists(facts, host.PROGRAMS)
            yield Link(
                path=host.AGENT_BINARY,
                target=host.AGENT_CURRENT_BINARY,
                purpose="link the agent's program",
            )
        yield from self._remove_unused(facts)

    @property
    def folder(self) -> str:
        """Return the folder of this release."""
        return host.agent_release(self.artifact.version)

    @property
    def _install(self) -> ArchiveInstall:
        return ArchiveInstall(self.artifact, host.AGENT_ROOT, "agent")

    def _install_release(self, facts: Facts) -> Iterator[Command]:
        if facts.stat(Stat(self.folder, digest=True)) and not self._is_not_current(facts):
            # The agent runs from this folder; what it has loaded may be damaged, too.
            yield from agent_daemon.note_restart(facts)
        yield from self._install.install(
            facts, self.folder, version_command=(_PROGRAM, "--version")
        )

    def _is_not_current(self, facts: Facts) -> bool:
        return _target(facts, _CURRENT) != self.folder

    def _switch(self, facts: Facts) -> Iterator[Command]:
        before = _target(facts, _CURRENT)
        # Before the switch: an interruption leaves a release that is current and previous, never one without a link.
        if before and _target(facts, _PREVIOUS) != before:
            yield Link(
                path=host.AGENT_PREVIOUS, target=before, purpose="record the previous release"
            )
        yield Link(
            path=host.AGENT_CURRENT,
            target=self.folder,
            purpose=f"make {self.artifact.version} the current release of the agent",
        )

    def _remove_unused(self, facts: Facts) -> Iterator[Command]:
        # The facts are older than the switch: what was current then is the previous release now.
        previous = _CURRENT if self._is_not_current(facts) else _PREVIOUS
        kept = {self.folder, _target(facts, previous)}
        for version in _versions(facts, _RELEASES):
            if host.agent_release(version) not in kept:
                yield archive_install.remove_unneeded(host.agent_release(version))
        needed = self._needed_interpreters(facts, host.AGENT_CURRENT, previous.path)
        if needed is None:
            return
        for version in _versions(facts, _INTERPRETERS):
            if version not in needed:
                yield archive_install.remove_unneeded(host.agent_interpreter(version))

    def _needed_interpreters(self, facts: Facts, *links: str) -> set[str] | None:
        """Return the required versions; None if the manifest of a release cannot be read, so that nothing is removed."""
        versions = {self.interpreter}
        for text in (facts.file(_manifest(link)) for link in links):
            if text is None:
                continue
            try:
                versions.add(msgspec.json.decode(text, type=_Manifest).interpreter)
            except msgspec.MsgspecError:
                return None
        return versions if self.interpreter else None


def _manifest(link: str) -> ReadFile:
    return ReadFile(f"{link}/{agent_archive.MANIFEST}")


def _target(facts: Facts, link: Stat) -> str:
    stat = facts.stat(link)
    return stat.target if stat else ""


def _versions(facts: Facts, listing: RunProbe) -> list[str]:
    """Return the folders named like a version; all others are not ours."""
    return [name for name in facts.result(listing).text.split() if agent_archive.is_version(name)]
