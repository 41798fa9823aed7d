"""Archives of file trees: the same files give the same bytes on every machine.

A `Tree` names the files and where their bytes come from. `make` writes a tree into a folder, compiles its modules, checks that
native files are for the target platform, and packs it. Members are sorted behind the manifest; owner, time and mode are fixed
(files in `bin/` are executable, others are not), and gzip's header has neither name nor time. Another implementation of zlib
may compress to other bytes, so the manifest's version is derived from the contents and not from the file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from bramley.app.agent_bundle import compile_tree
from bramley.base.errors import BadConfiguration
from bramley.host.agent_archive import MANIFEST, Kind, Manifest, Platform

PYTHON_SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"
# Compression levels of gzip.
SMALL, FAST = 6, 1
_BYTECODE_FOLDER = "__pycache__"
_COMPILE_TIMEOUT_SECONDS = 300
# A fixed seed: the order of a set in bytecode depends on the hashes of its elements.
_COMPILE_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_VERSION_DIGITS = 12
_LINK_MODE = 0o777
_HEAD_BYTES = 4096
_MACH_O_64 = b"\xcf\xfa\xed\xfe"
# Big-endian, 32-bit, and both: no current Mac runs them.
_MACH_O_OLD = (b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xfe\xed\xfa\xce")
_UNIVERSAL = b"\xca\xfe\xba\xbe"
_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_ELF = b"\x7fELF"
_MACH_O_CPU = {0x0100000C: "macos-arm64", 0x01000007: "macos-x86_64"}
_ELF_MACHINE = {0xB7: "linux-arm64", 0x3E: "linux-x86_64"}
# Java class files have the same magic number as universal binaries, and a larger number in the place of the slice count.
_MAX_SLICES = 20


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link, relative to its own folder."""

    target: str


Source = Path | bytes | Link
Tree = Mapping[str, Source]


def file_mode(name: str) -> int:
    """Return the mode that a file gets in the archive; the umask and mode of its source do not matter."""
    return 0o755 if name.startswith("bin/") else 0o644


def is_bytecode(name: str) -> bool:
    """Return whether a name is that of a compiled module, which is derived from its source."""
    return _BYTECODE_FOLDER in PurePosixPath(name).parts


def write_tree(tree: Tree, folder: Path) -> None:
    """Write a tree into a new folder."""
    for name, source in sorted(tree.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, Link):
            path.symlink_to(source.target)
        elif isinstance(source, bytes):
            path.write_bytes(source)
        else:
            shutil.copyfile(source, path)


def read_tree(folder: Path) -> dict[str, Source]:
    """Return the tree of a folder."""
    tree: dict[str, Source] = {}
    for name in file_names(folder):
        path = folder / name
        tree[name] = Link(str(path.readlink())) if path.is_symlink() else path
    return tree


def file_names(folder: Path) -> Iterator[str]:
    """Yield the names of all files and links in a folder, in order."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    yield from sorted(path.relative_to(folder).as_posix() for path in paths)


def content_hash(tree: Tree) -> str:
    """Return the SHA-256 over the names, modes and contents of all files but bytecode."""
    digest = hashlib.sha256()
    for name, source in sorted(tree.items()):
        if not is_bytecode(name):
            digest.update(f"{name}\0{file_mode(name):o}\0{_digest(source)}\n".encode())
    return digest.hexdigest()


def _digest(source: Source) -> str:
    if isinstance(source, Link):
        return f"-> {source.target}"
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def native_platforms(head: bytes) -> frozenset[str]:
    """Return the platforms of a native file (Mach-O, thin or universal, or ELF) by its first bytes; empty for any other file."""
    if head.startswith(_MACH_O_64) and len(head) >= 8:
        return frozenset({_MACH_O_CPU.get(struct.unpack_from("<I", head, 4)[0], "macos-unknown")})
    if head.startswith(_UNIVERSAL) and len(head) >= 8:
        return frozenset(_slices(head))
    if head.startswith(_ELF_64_LITTLE) and len(head) >= 20:
        return frozenset({_ELF_MACHINE.get(struct.unpack_from("<H", head, 18)[0], "linux-unknown")})
    return frozenset({"unknown"}) if head.startswith((_ELF, *_MACH_O_OLD)) else frozenset()


def _slices(head: bytes) -> Iterator[str]:
    (count,) = struct.unpack_from(">I", head, 4)
    if count <= _MAX_SLICES:
        for number in range(count):
            (cpu,) = struct.unpack_from(">I", head, 8 + 20 * number)
            yield _MACH_O_CPU.get(cpu, "macos-unknown")


def native_files(folder: Path) -> dict[str, frozenset[str]]:
    """Return the native files of a folder by name, each with its platforms."""
    platforms = ((name, native_platforms(_head(folder / name))) for name in file_names(folder))
    return {name: machines for name, machines in platforms if machines}


def _head(path: Path) -> bytes:
    if path.is_symlink():
        return b""
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def require_platform(folder: Path, platform: Platform) -> None:
    """Refuse a folder with a native file that does not run on this platform."""
    for name, machines in native_files(folder).items():
        if platform not in machines:
            raise BadConfiguration(
                f"{name} is for {', '.join(sorted(machines))} and does not run on {platform};"
                " use files built for that platform"
            )


def compile_modules(folder: Path, python: str) -> None:
    """Compile every module in a folder for a series of Python, which must be the running one."""
    if python != PYTHON_SERIES:
        raise BadConfiguration(
            f"this is Python {PYTHON_SERIES}, which cannot compile for {python}; run the same command with python{python}"
        )
    command = [sys.executable, "-s", "-S", "-P", "-B", compile_tree.__file__, str(folder)]
    result = subprocess.run(  # noqa: S603 - our own interpreter and our own file
        command,
        env=_COMPILE_ENVIRONMENT,
        capture_output=True,
        timeout=_COMPILE_TIMEOUT_SECONDS,
        check=False,
    )
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace").strip()[-500:]
        raise BadConfiguration(f"the modules in {folder} cannot be compiled: {message}")


@dataclass(frozen=True, slots=True)
class ArchiveSpec:
    """The manifest of an archive without the fields that are computed from its content."""

    kind: Kind
    name: str
    # The version is this release number and the beginning of the content hash.
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
    """One archive file."""

    path: Path
    size: int
    sha256: str
    manifest: Manifest

    @classmethod
    def of(cls, path: Path, manifest: Manifest) -> Archive:
        """Return the description of a file with this manifest."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path, path.stat().st_size, digest, manifest)


def make(files: Tree, spec: ArchiveSpec, into: Path, *, level: int = SMALL) -> Archive:
    """Write a tree into a scratch folder, compile its modules and pack it into an archive in the folder `into`."""
    with tempfile.TemporaryDirectory(prefix="agent-bundle-") as scratch:
        stage = Path(scratch, "stage")
        write_tree(files, stage)
        compile_modules(stage, spec.python)
        return pack(stage, spec, into, level=level)


def pack(folder: Path, spec: ArchiveSpec, into: Path, *, level: int = SMALL) -> Archive:
    """Pack a folder into an archive in the folder `into`, named by its manifest."""
    require_platform(folder, spec.platform)
    tree = read_tree(folder)
    _require_distinct(tree)
    manifest = spec.manifest(content_hash(tree))
    into.mkdir(parents=True, exist_ok=True)
    target = into / f"{manifest.name}-{manifest.version}-{manifest.platform}.tar.gz"
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        # Under another name until it is complete: no reader of the folder finds half an archive.
        _write(unfinished, tree, manifest, level)
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return Archive.of(target, manifest)


def _write(path: Path, tree: Tree, manifest: Manifest, level: int) -> None:
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=level, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as members,
    ):
        _add(members, MANIFEST, text)
        for folder in _folders(tree):
            members.addfile(_member(folder, tarfile.DIRTYPE, 0o755))
        for name, source in sorted(tree.items()):
            _add(members, name, source)


def _folders(tree: Tree) -> list[str]:
    """Return every folder once, parents first; with explicit folders their modes do not depend on the host's umask."""
    parents = {parent.as_posix() for name in tree for parent in Path(name).parents}
    return sorted(parents - {"."})


def _add(members: tarfile.TarFile, name: str, source: Source) -> None:
    if isinstance(source, Link):
        member = _member(name, tarfile.SYMTYPE, _LINK_MODE)
        member.linkname = source.target
        members.addfile(member)
        return
    member = _member(name, tarfile.REGTYPE, file_mode(name))
    if isinstance(source, bytes):
        member.size = len(source)
        members.addfile(member, io.BytesIO(source))
        return
    member.size = source.stat().st_size
    with source.open("rb") as file:
        members.addfile(member, file)


def _member(name: str, type: bytes, mode: int) -> tarfile.TarInfo:
    # A new TarInfo belongs to root without a name, and its time is the epoch.
    member = tarfile.TarInfo(name)
    member.type, member.mode = type, mode
    return member


def _require_distinct(tree: Tree) -> None:
    """Refuse names that are equal on the case-insensitive file system of a Mac."""
    seen: dict[str, str] = {}
    for name in tree:
        other = seen.setdefault(name.casefold(), name)
        if other != name or name == MANIFEST:
            raise BadConfiguration(f"{name} would overwrite {other} on the disk of a Mac")
