"""How an archive becomes a folder on a Mac: brought and unpacked beside its place, asked whether it works, and only then renamed.

What lies at its place was whole and has answered; a seal, written before it got its name, tells at every look whether it still is what
it was. One that is not is replaced by another name, so that whatever runs from it goes on. What a cut leaves behind has a name that
nothing else uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from bramley.api.names import host
from bramley.host.artifacts import Artifact
from bramley.host.commands import (
    ROOT,
    Command,
    Find,
    Folder,
    LookAt,
    Probe,
    Remove,
    Rename,
    Run,
    Seal,
    Stream,
)
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

    @property
    def damaged(self) -> str:
        """Return where that lies which is replaced, until it is removed."""
        return f"{self.folder}/.{self.word}.damaged"

    def looks(self) -> list[Probe]:
        """Ask for the folder, and for what a cut has left."""
        return [Find(self.folder), *self._left, _seal(self.incoming)]

    def install(self, seen: Facts, place: str, *, answer: tuple[str, ...]) -> Iterator[Command]:
        """Yield what unpacks it, lets it answer and seals it, and then gives it its place; what lies there goes last."""
        name = f"{self.artifact.name} {self.artifact.version}"
        # What was sealed before a cut, beside the archive that it came of, has answered.
        if not (self._is_brought(seen) and is_whole(seen, self.incoming)):
            yield from self.bring(seen, answer=answer)
            yield Seal(path=self.incoming, purpose=f"note what {name} holds")
        if seen.found(Find(place, digest=True)):
            if seen.found(Find(self.damaged)):
                yield _removed(self.damaged)
            yield Rename(path=place, to=self.damaged, purpose=f"make room for {name}")
        yield Rename(path=self.incoming, to=place, purpose=f"put {name} in its place")
        yield from self.clear()
        if seen.found(Find(place, digest=True)) or seen.found(Find(self.damaged)):
            yield _removed(self.damaged)

    def bring(self, seen: Facts, *, answer: tuple[str, ...]) -> Iterator[Command]:
        """Yield what unpacks it and lets it answer: the first word is a program's path in the archive."""
        name = f"{self.artifact.name} {self.artifact.version}"
        yield from present(seen, self.folder)
        if seen.found(Find(self.incoming, digest=True)):
            yield _removed(self.incoming)
        # One that came whole before a cut is not sent again.
        if not self._is_brought(seen):
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
        yield from (_removed(look.path) for look in self._left if seen.found(look))

    def _is_brought(self, seen: Facts) -> bool:
        found = seen.found(Find(self.archive, digest=True))
        return found is not None and found.digest == self.artifact.sha256

    @property
    def _left(self) -> tuple[Find, ...]:
        used = (Find(at, digest=True) for at in (self.archive, self.incoming))
        return (*used, Find(self.damaged))


def whole_looks(place: str) -> list[Probe]:
    """Ask whether a folder still holds what it was sealed with."""
    return [Find(place, digest=True), _seal(place)]


def is_whole(seen: Facts, place: str) -> bool:
    """Tell whether a folder is there and holds what it was sealed with; asked for with `whole_looks`."""
    found, sealed = seen.found(Find(place, digest=True)), seen.file(_seal(place)) or b""
    return (
        found is not None
        and bool(sealed)
        and sealed.decode("utf-8", "replace").strip() == found.digest
    )


def _seal(place: str) -> LookAt:
    return LookAt(f"{place}/{host.SEAL}", as_root=True, most=4096)


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
