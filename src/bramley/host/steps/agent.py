"""The agent's code: releases beside each other, one link that says which one runs, and the one before kept.

A release is named by its version only after it has answered, and the link is switched only then. The running agent is not touched
here: it is noted that it has to be restarted, and the step of its job does so. VMs outlive that. A release that somebody has damaged
is replaced in the same way by the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from bramley.api.names import host
from bramley.host import agent_archive, drift, grammar, restarting, unpacking
from bramley.host.artifacts import Artifact
from bramley.host.commands import Command, Find, Link, Look, LookAt, Probe, Remove
from bramley.host.facts import Facts
from bramley.host.unpacking import Unpacking

_CURRENT = Find(host.AGENT_CURRENT)
_PROGRAM = host.AGENT_CURRENT_BINARY.removeprefix(f"{host.AGENT_CURRENT}/")
_PREVIOUS = Find(host.AGENT_PREVIOUS)
_BINARY = Find(host.AGENT_BINARY)
_RELEASES = Look(("ls", "-1", host.AGENT_ROOT))
_INTERPRETERS = Look(("ls", "-1", host.AGENT_INTERPRETERS))


class _Manifest(msgspec.Struct):
    interpreter: str


@dataclass(frozen=True, slots=True)
class Agent:
    """Bring a release of the agent's code, and let it be the one that starts; `interpreter` is the version it needs."""

    name: ClassVar[str] = "agent"
    title: ClassVar[str] = "the agent's code"

    artifact: Artifact
    interpreter: str = ""

    def __post_init__(self) -> None:
        version = grammar.FOLDER_NAME.check("version", self.artifact.version)
        grammar.require("the agent", version)

    def wanted(self) -> drift.Wanted:
        """Stamp the archive."""
        return drift.Wanted(drift.Part.AGENT, {"archive": self.artifact.sha256})

    def looks(self) -> list[Probe]:
        """Ask for this release, the links, all that lies beside, and the running agent."""
        links = [_CURRENT, _PREVIOUS, _BINARY, Find(host.PROGRAMS)]
        manifests = [_manifest(link) for link in (host.AGENT_CURRENT, host.AGENT_PREVIOUS)]
        lists = [_RELEASES, _INTERPRETERS, *unpacking.whole_looks(self.folder)]
        return [*links, *lists, *manifests, *restarting.LOOKS, *self._unpacking.looks()]

    def refuse(self, seen: Facts) -> None:
        """Refuse nothing."""

    def plan(self, seen: Facts) -> Iterator[Command]:
        """Bring the release, switch to it, and remove those that nobody goes back to."""
        if not unpacking.is_whole(seen, self.folder):
            yield from self._bring(seen)
        else:
            yield from self._unpacking.clear_left(seen)
        is_linked = _target(seen, _BINARY) == host.AGENT_CURRENT_BINARY
        if self._is_other(seen) or not is_linked:
            yield from restarting.note(seen)
        if self._is_other(seen):
            yield from self._switch(seen)
        if not is_linked:
            yield from unpacking.present(seen, host.PROGRAMS)
            yield Link(
                path=host.AGENT_BINARY,
                target=host.AGENT_CURRENT_BINARY,
                purpose="let the agent be found",
            )
        yield from self._clean(seen)

    @property
    def folder(self) -> str:
        """Return where this release lies."""
        return host.agent_release(self.artifact.version)

    @property
    def _unpacking(self) -> Unpacking:
        return Unpacking(self.artifact, host.AGENT_ROOT, "agent")

    def _bring(self, seen: Facts) -> Iterator[Command]:
        if seen.found(Find(self.folder, digest=True)) and not self._is_other(seen):
            # It runs from there; what it has loaded may be damaged, too.
            yield from restarting.note(seen)
        yield from self._unpacking.install(seen, self.folder, answer=(_PROGRAM, "--version"))

    def _is_other(self, seen: Facts) -> bool:
        return _target(seen, _CURRENT) != self.folder

    def _switch(self, seen: Facts) -> Iterator[Command]:
        before = _target(seen, _CURRENT)
        if before and _target(seen, _PREVIOUS) != before:
            yield Link(
                path=host.AGENT_PREVIOUS, target=before, purpose="remember the release of before"
            )
        yield Link(
            path=host.AGENT_CURRENT,
            target=self.folder,
            purpose=f"let the agent {self.artifact.version} be the one that starts",
        )

    def _clean(self, seen: Facts) -> Iterator[Command]:
        before = _CURRENT if self._is_other(seen) else _PREVIOUS
        kept = {self.folder, _target(seen, before)}
        for version in _versions(seen, _RELEASES):
            if host.agent_release(version) not in kept:
                yield _removed(host.agent_release(version))
        needed = self._interpreters(seen, host.AGENT_CURRENT, before.path)
        if needed is None:
            return
        for version in _versions(seen, _INTERPRETERS):
            if version not in needed:
                yield _removed(host.agent_interpreter(version))

    def _interpreters(self, seen: Facts, *links: str) -> set[str] | None:
        """Return the versions that are needed; None if one release does not say, so that nothing is removed."""
        found = {self.interpreter}
        for text in (seen.file(_manifest(link)) for link in links):
            if text is None:
                continue
            try:
                found.add(msgspec.json.decode(text, type=_Manifest).interpreter)
            except msgspec.MsgspecError:
                return None
        return found if self.interpreter else None


def _manifest(link: str) -> LookAt:
    return LookAt(f"{link}/{agent_archive.MANIFEST}")


def _target(seen: Facts, link: Find) -> str:
    found = seen.found(link)
    return found.target if found else ""


def _versions(seen: Facts, listed: Look) -> list[str]:
    """Return what is named like a version; whatever else lies there is not ours."""
    return [name for name in seen.said(listed).text.split() if agent_archive.is_version(name)]


def _removed(path: str) -> Remove:
    return Remove(path=path, purpose=f"remove {path}, which nothing goes back to")
