"""An archive from outside: unpacked only if it has the expected SHA-256, and only members that stay inside the folder.

Names must stay inside the folder, links too, and what it unpacks to is bounded. Links are made last, so that nothing is ever
written through one.
"""

from __future__ import annotations

import hashlib
import itertools
import posixpath
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bramley.base.errors import BadConfiguration

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_BLOCK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much an archive may unpack to; an interpreter takes a tenth of this."""

    members: int = 60_000
    member_bytes: int = 400_000_000
    total_bytes: int = 2_000_000_000


@contextmanager
def opened(path: Path, sha256: str) -> Iterator[tarfile.TarFile]:
    """Open an archive once, check its hash, and only then read it, from the same open file."""
    expected = sha256.strip().lower()
    if not _DIGEST.fullmatch(expected):
        raise BadConfiguration(f"{sha256!r} is not a SHA-256: give 64 hexadecimal digits")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected:
            raise BadConfiguration(
                f"{path} has the SHA-256 {digest}, not {expected}; nothing was unpacked: fetch it again, or give"
                " the hash that its publisher names"
            )
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:gz") as archive:
                yield archive
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise BadConfiguration(f"{path} is no whole .tar.gz: {error}") from error


@dataclass(slots=True)
class Unpacking:
    """Unpacks one archive into a folder, without its top-level folder."""

    archive: tarfile.TarFile
    folder: Path
    # By name: which members are written; all are checked.
    is_included: Callable[[str], bool]
    bounds: Bounds = field(default_factory=Bounds)
    names: set[str] = field(default_factory=set)
    _links: dict[str, str] = field(default_factory=dict)
    _bytes: int = 0

    def run(self) -> None:
        """Check every member and write the included ones."""
        for member in self.archive:
            name = _name(member)
            if name in self.names and not member.isdir():
                raise BadConfiguration(f"{member.name} comes twice")
            self.names.add(name)
            if member.issym():
                self._links[name] = _inside(name, member.linkname)
            elif not member.isdir():
                self._file(member, name)
            if len(self.names) > self.bounds.members:
                raise BadConfiguration(f"it has more than {self.bounds.members} members")
        self._require_plain()
        for name in filter(self.is_included, self._links):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).symlink_to(self._links[name])

    def _file(self, member: tarfile.TarInfo, name: str) -> None:
        self._bytes += member.size
        if member.size > self.bounds.member_bytes or self._bytes > self.bounds.total_bytes:
            raise BadConfiguration(f"{member.name}: it unpacks to more than an interpreter holds")
        if self.is_included(name):
            self._write(member, self.folder / name)

    def _write(self, member: tarfile.TarInfo, path: Path) -> None:
        content = self.archive.extractfile(member)
        if content is None:
            raise BadConfiguration(f"{member.name} holds nothing")
        path.parent.mkdir(parents=True, exist_ok=True)
        with content, path.open("xb") as file:
            shutil.copyfileobj(content, file, _BLOCK)

    def _require_plain(self) -> None:
        for name in self.names:
            if any(parent.as_posix() in self._links for parent in PurePosixPath(name).parents):
                raise BadConfiguration(f"{name} lies behind a link")


def _name(member: tarfile.TarInfo) -> str:
    if not (member.isreg() or member.isdir() or member.issym()):
        raise BadConfiguration(f"{member.name} is neither a file nor a folder nor a symbolic link")
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise BadConfiguration(f"{member.name!r} leads out of the archive")
    return PurePosixPath(*path.parts[1:]).as_posix()


def _inside(name: str, target: str) -> str:
    """Return a link's target if it stays in the folder, judged by its text: links are never followed."""
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    # ".." after a name is refused: the parent of a link's target differs from the parent of its name.
    goes_up_later = ".." in itertools.dropwhile(lambda part: part == "..", target.split("/"))
    if posixpath.isabs(target) or reached.split("/")[0] == ".." or goes_up_later or not target:
        raise BadConfiguration(f"the link {name} leads out of the archive, to {target!r}")
    return target
