"""Install an archive as a folder on a Mac: upload and unpack it beside its destination, check that it runs, and only then rename it.

So the destination is always complete and was run once. The seal, written before the rename, shows at every probe whether the folder has
changed since. A damaged folder is renamed before it is replaced, so that processes running from it continue. Leftovers of an
interruption have names that nothing else uses.
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
    Folder,
    Probe,
    ReadFile,
    Remove,
    Rename,
    Run,
    Seal,
    Stat,
    Stream,
)
from bramley.host.facts import FOLDER, Facts

_UNPACK_TIMEOUT = timedelta(minutes=5)
_VERSION_TIMEOUT = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class ArchiveInstall:
    """The installation of one archive below a folder of the Mac; `prefix` names its temporary files there."""

    artifact: Artifact
    folder: str
    prefix: str

    @property
    def archive(self) -> str:
        """Return the path of the uploaded archive."""
        return f"{self.folder}/.{self.prefix}.incoming.tar.gz"

    @property
    def incoming(self) -> str:
        """Return the folder in which it is unpacked."""
        return f"{self.folder}/.{self.prefix}.incoming"

    @property
    def damaged(self) -> str:
        """Return the path of a replaced folder until it is removed."""
        return f"{self.folder}/.{self.prefix}.damaged"

    def probes(self) -> list[Probe]:
        """Probe the folder, and leftovers of an interruption."""
        return [Stat(self.folder), *self._leftovers, _seal_file(self.incoming)]

    def install(
        self, facts: Facts, destination: str, *, version_command: tuple[str, ...]
    ) -> Iterator[Command]:
        """Yield the commands that unpack, check and seal it, and then rename it to its destination; an old folder is removed last."""
        name = f"{self.artifact.name} {self.artifact.version}"
        # A folder that was sealed before an interruption, and whose archive is still there, has been checked.
        if not (self._is_uploaded(facts) and is_intact(facts, self.incoming)):
            yield from self.unpack(facts, version_command=version_command)
            yield Seal(path=self.incoming, purpose=f"seal {name}")
        if facts.stat(Stat(destination, digest=True)):
            if facts.stat(Stat(self.damaged)):
                yield remove_unneeded(self.damaged)
            # Directly before the next rename: the path is missing only for a moment.
            yield Rename(path=destination, to=self.damaged, purpose=f"rename the damaged {name}")
        yield Rename(path=self.incoming, to=destination, purpose=f"install {name}")
        yield from self.remove_temporary()
        if facts.stat(Stat(destination, digest=True)) or facts.stat(Stat(self.damaged)):
            yield remove_unneeded(self.damaged)

    def unpack(
        self, facts: Facts, *, version_command: tuple[str, ...], owner: str = ROOT
    ) -> Iterator[Command]:
        """Yield the commands that unpack it and run `version_command`, whose first word is a program's path in the archive.

        With another owner all of it belongs to that one, for programs that write to their own folder.
        """
        name = f"{self.artifact.name} {self.artifact.version}"
        yield from ensure_exists(facts, self.folder)
        if facts.stat(Stat(self.incoming, digest=True)):
            yield remove_unneeded(self.incoming)
        # An archive that was completely uploaded before an interruption is not sent again.
        if not self._is_uploaded(facts):
            yield Stream(artifact=self.artifact, path=self.archive, purpose=f"upload {name}")
        yield Folder(path=self.incoming, purpose=f"create a folder for {name}")
        yield Run(
            # -o: owned by root, regardless of the owners in the archive.
            argv=("tar", "-x", "-z", "-o", "-f", self.archive, "-C", self.incoming),
            purpose=f"unpack {name}",
            as_root=True,
            timeout=_UNPACK_TIMEOUT,
        )
        if owner != ROOT:
            yield Run(
                argv=("chown", "-R", owner, self.incoming),
                purpose=f"change the owner of {name}",
                as_root=True,
            )
        yield Run(
            argv=(f"{self.incoming}/{version_command[0]}", *version_command[1:]),
            purpose=f"check that {name} runs",
            timeout=_VERSION_TIMEOUT,
        )

    def remove_temporary(self) -> Iterator[Command]:
        """Yield the removal of the temporary files of this installation."""
        yield remove_unneeded(self.archive)
        yield remove_unneeded(self.incoming)

    def remove_leftovers(self, facts: Facts) -> Iterator[Command]:
        """Yield the removal of temporary files of an interrupted run."""
        return (remove_unneeded(probe.path) for probe in self._leftovers if facts.stat(probe))

    def _is_uploaded(self, facts: Facts) -> bool:
        stat = facts.stat(Stat(self.archive, digest=True))
        return stat is not None and stat.digest == self.artifact.sha256

    @property
    def _leftovers(self) -> tuple[Stat, ...]:
        temporary = (Stat(path, digest=True) for path in (self.archive, self.incoming))
        return (*temporary, Stat(self.damaged))


def intact_probes(folder: str) -> list[Probe]:
    """Return the probes for `is_intact`."""
    return [Stat(folder, digest=True), _seal_file(folder)]


def is_intact(facts: Facts, folder: str) -> bool:
    """Return whether a folder exists and is unchanged since it was sealed; needs `intact_probes`."""
    stat, seal = facts.stat(Stat(folder, digest=True)), facts.file(_seal_file(folder)) or b""
    return (
        stat is not None and bool(seal) and seal.decode("utf-8", "replace").strip() == stat.digest
    )


def _seal_file(folder: str) -> ReadFile:
    return ReadFile(f"{folder}/{host.SEAL}", as_root=True, max_bytes=4096)


def ensure_folder(
    facts: Facts, path: str, *, owner: str = ROOT, mode: int = 0o755
) -> Iterator[Command]:
    """Yield the creation of a folder, if it does not exist or its owner or mode differs; needs a Stat probe."""
    stat = facts.stat(Stat(path))
    if stat is None or (stat.kind, stat.owner, stat.mode) != (FOLDER, owner, mode):
        yield Folder(path=path, purpose=f"create the folder {path}", owner=owner, mode=mode)


def ensure_exists(facts: Facts, path: str) -> Iterator[Command]:
    """Yield the creation of a shared folder, whose owner and mode stay if it exists; needs a Stat probe."""
    if facts.stat(Stat(path)) is None:
        yield Folder(path=path, purpose=f"create the folder {path}")


def remove_unneeded(path: str) -> Remove:
    """Return the removal of a path that is no longer needed."""
    return Remove(path=path, purpose=f"remove {path}, which is no longer needed")
