"""Backups as one tar: a manifest first, then the parts that it lists, in its order and with its digests.

A file that is read is not trusted: only known names are accepted, each part must have the size and SHA-256 of the manifest,
and all files are written readable by their owner only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

import msgspec

from bramley.apiserver.admin import kubeconfigs
from bramley.apiserver.auth import bearer_tokens, signing_keys
from bramley.apiserver.pki import tls
from bramley.apiserver.store.data_folder import DATABASE
from bramley.base.errors import BadConfiguration

FORMAT = 1
MANIFEST = "manifest.json"
KUBECONFIG = "kubeconfig"
TLS = tuple(f"{tls.FOLDER}/{name}" for name in ("ca.crt", "ca.key", "serving.crt", "serving.key"))
REQUIRED = (DATABASE, *TLS[:2], bearer_tokens.FILE)
NAMES = (DATABASE, *TLS, bearer_tokens.FILE, signing_keys.FILE, KUBECONFIG)
"""All parts of a backup, in this order; keys of ServiceAccounts are generated at first use, so they may be missing."""

CHUNK_BYTES = 256 * 1024
_MAX_MANIFEST_BYTES = 64 * 1024
_END = tarfile.NUL * (2 * tarfile.BLOCKSIZE)


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """One part in the manifest."""

    name: str
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """The origin and the content of a backup."""

    format: int
    bramley: str
    made: datetime
    revision: int
    objects: int
    parts: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One part and its content, or the path of it."""

    name: str
    source: Path | bytes

    def chunks(self) -> Iterator[bytes]:
        """Yield the content."""
        if isinstance(self.source, bytes):
            yield self.source
            return
        with self.source.open("rb") as file:
            yield from _chunks_of(file)

    def entry(self) -> Entry:
        """Read the content and return its entry in the manifest."""
        digest, size_bytes = hashlib.sha256(), 0
        for chunk in self.chunks():
            digest.update(chunk)
            size_bytes += len(chunk)
        return Entry(self.name, size_bytes, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Archive:
    """A backup to write."""

    manifest: Manifest
    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole tar."""
        sizes = [len(self._encoded()), *(entry.size_bytes for entry in self.manifest.parts)]
        return sum(tarfile.BLOCKSIZE + size + _padding(size) for size in sizes) + len(_END)

    def chunks(self) -> Iterator[bytes]:
        """Yield the tar in chunks."""
        encoded = self._encoded()
        yield _head(MANIFEST, len(encoded), self.manifest.made)
        yield encoded + tarfile.NUL * _padding(len(encoded))
        for entry, part in zip(self.manifest.parts, self.parts, strict=True):
            yield _head(entry.name, entry.size_bytes, self.manifest.made)
            yield from part.chunks()
            yield tarfile.NUL * _padding(entry.size_bytes)
        yield _END

    def _encoded(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.manifest)) + b"\n"


def small_parts(folder: Path, kubeconfig: Path) -> list[Part]:
    """Return all parts of a data folder except the database, read now."""
    paths = {name: folder / name for name in NAMES if name != DATABASE}
    paths[KUBECONFIG] = kubeconfig
    try:
        kubeconfigs.refuse_foreign(kubeconfig)
    except BadConfiguration:
        # The user has added other clusters to it: their credentials must not get into a backup.
        del paths[KUBECONFIG]
    parts = []
    for name, path in paths.items():
        with contextlib.suppress(FileNotFoundError):
            parts.append(Part(name, path.read_bytes()))
    return parts


def check(path: Path) -> Manifest:
    """Read a whole backup and return its manifest; raise BadConfiguration if a part differs from the manifest."""
    return unpack(path, None)


def unpack(path: Path, into: Path | None) -> Manifest:
    """Check a backup, and write its parts below a folder if one is given."""
    try:
        with tarfile.open(path, "r:", errorlevel=2) as tar:
            manifest = _manifest(_next(tar), tar)
            for entry in manifest.parts:
                _read_part(entry, tar, into)
    except FileNotFoundError:
        raise BadConfiguration(f"{path} does not exist") from None
    except (tarfile.TarError, EOFError, ValueError, msgspec.DecodeError) as error:
        raise BadConfiguration(
            f"{path} is damaged or not a backup of Bramley ({error}); use another backup"
        ) from error
    return manifest


def _manifest(member: tarfile.TarInfo, tar: tarfile.TarFile) -> Manifest:
    if member.name != MANIFEST or member.size > _MAX_MANIFEST_BYTES:
        raise ValueError("it does not begin with a manifest")
    encoded = _content(member, tar).read()
    fields = msgspec.json.decode(encoded, type=dict[str, object])
    if fields.get("format") != FORMAT:
        raise ValueError(f"format {fields.get('format')!r} is not known to this release")
    manifest = msgspec.json.decode(encoded, type=Manifest)
    names = [entry.name for entry in manifest.parts]
    if missing := set(REQUIRED) - set(names):
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    if names != [name for name in NAMES if name in names]:
        raise ValueError("its parts are not those of a backup")
    return manifest


def _read_part(entry: Entry, tar: tarfile.TarFile, into: Path | None) -> None:
    member = _next(tar)
    if member.name != entry.name or not member.isreg() or member.size != entry.size_bytes:
        raise ValueError(f"{entry.name} is not where it should be")
    digest = hashlib.sha256()
    with _private(into / entry.name) if into else contextlib.nullcontext() as out:
        for chunk in _chunks_of(_content(member, tar)):
            digest.update(chunk)
            if out:
                out.write(chunk)
    if digest.hexdigest() != entry.sha256:
        raise ValueError(f"{entry.name} does not match the digest in the manifest")


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo:
    member = tar.next()
    if member is None:
        raise EOFError("it ends too early")
    return member


def _content(member: tarfile.TarInfo, tar: tarfile.TarFile) -> IO[bytes]:
    content = tar.extractfile(member)
    if content is None:
        raise ValueError(f"{member.name} is not a file")
    return content


def _private(path: Path) -> IO[bytes]:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _head(name: str, size_bytes: int, made: datetime) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size_bytes, 0o600, int(made.timestamp())
    return member.tobuf(tarfile.GNU_FORMAT)


def _padding(size_bytes: int) -> int:
    return -size_bytes % tarfile.BLOCKSIZE
