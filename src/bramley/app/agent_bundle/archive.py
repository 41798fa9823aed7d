"""Packing a folder: the same files give the same bytes, whoever packs them, whenever and wherever.

Members are sorted behind the manifest; owner, time and mode are fixed, and gzip's header has neither name nor time. Another
implementation of zlib may compress to other bytes, so the manifest's version tells of the contents and not of the file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bramley.app.agent_bundle import native, tree
from bramley.base.errors import BadConfiguration
from bramley.host.agent_archive import MANIFEST, Kind, Manifest, Platform

SMALL, FAST = 6, 1
_VERSION_DIGITS = 12
_LINK_MODE = 0o777


@dataclass(frozen=True, slots=True)
class About:
    """What the packer is told of an archive; the contents' hash completes it to a manifest."""

    kind: Kind
    name: str
    # The release number, to which the beginning of the contents' hash is added.
    release: str
    platform: Platform
    python: str
    interpreter: str = ""
    inputs: tuple[tuple[str, str], ...] = ()

    def manifest(self, content: str) -> Manifest:
        """Return the manifest of an archive with this content."""
        return Manifest(
            kind=self.kind,
            name=self.name,
            version=f"{self.release}+{content[:_VERSION_DIGITS]}",
            platform=self.platform,
            python=self.python,
            interpreter=self.interpreter,
            content=content,
            inputs=dict(sorted(self.inputs)),
        )


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive on this disk."""

    path: Path
    size: int
    sha256: str
    manifest: Manifest

    @classmethod
    def of(cls, path: Path, manifest: Manifest) -> Archive:
        """Describe a file that holds what the manifest says."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path, path.stat().st_size, digest, manifest)


def pack(folder: Path, about: About, into: Path, *, level: int = SMALL) -> Archive:
    """Pack what a folder holds into an archive that is named by what it says of itself; `level` is gzip's."""
    native.require(folder, about.platform)
    found = tree.of_folder(folder)
    _require_distinct(found)
    manifest = about.manifest(tree.content(found))
    into.mkdir(parents=True, exist_ok=True)
    target = into / f"{manifest.name}-{manifest.version}-{manifest.platform}.tar.gz"
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        _write(unfinished, found, manifest, level)
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return Archive.of(target, manifest)


def _write(path: Path, found: tree.Tree, manifest: Manifest, level: int) -> None:
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=level, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as members,
    ):
        _add(members, MANIFEST, text)
        for folder in _folders(found):
            members.addfile(_member(folder, tarfile.DIRTYPE, 0o755))
        for name, source in sorted(found.items()):
            _add(members, name, source)


def _folders(found: tree.Tree) -> list[str]:
    """Return every folder once, each before those in it: modes on a host do not depend on its umask then."""
    parents = {parent.as_posix() for name in found for parent in Path(name).parents}
    return sorted(parents - {"."})


def _add(members: tarfile.TarFile, name: str, source: tree.Source) -> None:
    if isinstance(source, tree.Link):
        member = _member(name, tarfile.SYMTYPE, _LINK_MODE)
        member.linkname = source.target
        members.addfile(member)
        return
    member = _member(name, tarfile.REGTYPE, tree.mode_of(name))
    if isinstance(source, bytes):
        member.size = len(source)
        members.addfile(member, io.BytesIO(source))
        return
    member.size = source.stat().st_size
    with source.open("rb") as file:
        members.addfile(member, file)


def _member(name: str, type: bytes, mode: int) -> tarfile.TarInfo:
    # Owner and time are those of a new one: root without a name, and the epoch.
    member = tarfile.TarInfo(name)
    member.type, member.mode = type, mode
    return member


def _require_distinct(found: tree.Tree) -> None:
    seen: dict[str, str] = {}
    for name in found:
        other = seen.setdefault(name.casefold(), name)
        if other != name or name == MANIFEST:
            raise BadConfiguration(f"{name} would overwrite {other} on the disk of a Mac")
