"""How an archive becomes a folder on a Mac: brought and unpacked beside its place, asked whether it works, and only then renamed.

What lies at its place is whole and has answered, so its being there is all that a plan has to know. Whatever a cut leaves behind
has a name that nothing else uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from bramley.host.artifacts import Artifact
from bramley.host.commands import ROOT, Command, Find, Folder, Remove, Run, Stream
from bramley.host.facts import FOLDER, Facts

_UNPACKED_WITHIN = timedelta(minutes=5)
_ANSWERED_WITHIN = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Unpacking:
    """One archive on its way into a folder of the Mac; `word` names what it leaves there meanwhile."""

    artifact: Artifact
    folder: str
    word: str

    @property
    def archive(self) -> str:
        """Return where the archive lies until it is unpacked."""
        return f"{self.folder}/.{self.word}.incoming.tar.gz"

    @property
    def incoming(self) -> str:
        """Return where it is unpacked."""
        return f"{self.folder}/.{self.word}.incoming"

    def looks(self) -> list[Find]:
        """Ask for the folder, and for what a cut has left."""
        return [Find(self.folder), Find(self.archive), Find(self.incoming)]

    def bring(self, seen: Facts, *, answer: tuple[str, ...]) -> Iterator[Command]:
        """Yield what unpacks it and lets it answer: the first word is a program's path in the archive."""
        name = f"{self.artifact.name} {self.artifact.version}"
        yield from present(seen, self.folder)
        if seen.found(Find(self.incoming)):
            yield _removed(self.incoming)
        yield Stream(artifact=self.artifact, path=self.archive, purpose=f"bring {name}")
        yield Folder(path=self.incoming, purpose=f"make a folder for {name}")
        yield Run(
            # Owned by root, whoever built the archive.
            argv=("tar", "-x", "-z", "-o", "-f", self.archive, "-C", self.incoming),
            purpose=f"unpack {name}",
            as_root=True,
            within=_UNPACKED_WITHIN,
        )
        yield Run(
            argv=(f"{self.incoming}/{answer[0]}", *answer[1:]),
            purpose=f"let {name} answer before it is used",
            within=_ANSWERED_WITHIN,
        )

    def clear(self) -> Iterator[Command]:
        """Yield what removes all that was used on the way."""
        yield _removed(self.archive)
        yield _removed(self.incoming)

    def clear_left(self, seen: Facts) -> Iterator[Command]:
        """Yield what removes that of an earlier run which was cut."""
        yield from (_removed(at) for at in (self.archive, self.incoming) if seen.found(Find(at)))


def folder(seen: Facts, path: str, *, owner: str = ROOT, mode: int = 0o755) -> Iterator[Command]:
    """Yield what makes a folder, if there is none or it is another's; asked for with Find."""
    found = seen.found(Find(path))
    if found is None or (found.kind, found.owner, found.mode) != (FOLDER, owner, mode):
        yield Folder(path=path, purpose=f"make the folder {path}", owner=owner, mode=mode)


def present(seen: Facts, path: str) -> Iterator[Command]:
    """Yield what makes a folder that others may have made already, in their way."""
    if seen.found(Find(path)) is None:
        yield Folder(path=path, purpose=f"make the folder {path}")


def _removed(path: str) -> Remove:
    return Remove(path=path, purpose=f"remove {path}, which is needed no more")
