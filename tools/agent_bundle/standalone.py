"""The interpreter's archive for Macs, from a file of python-build-standalone: the files that an agent needs, unchanged.

Binaries are never touched: a grant of macOS follows their signature. The version is read from what the file holds, not from
its name.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path, PurePosixPath

from bramley.app.agent_bundle import interpreter
from bramley.app.agent_bundle.archive import (
    PYTHON_SERIES,
    Archive,
    ArchiveSpec,
    file_names,
    make,
    native_files,
    read_tree,
)
from bramley.base.errors import BadConfiguration
from bramley.host.agent_archive import Kind, Platform
from tools.agent_bundle.checked_archive import Bounds, Unpacking, opened

_PLATFORM = Platform.MACOS_ARM64
_VERSION_HEADER = re.compile(r"include/python3\.\d+/patchlevel\.h")
_VERSION = re.compile(r'^#define\s+PY_VERSION\s+"([0-9]+\.[0-9]+\.[0-9]+[0-9a-z]*)"', re.MULTILINE)
_PROGRAMS = re.compile(r"bin/python3(?:\.\d+)?")
_LIBRARIES = re.compile(r"lib/libpython3[\w.]*\.dylib")
_STANDARD_LIBRARY = re.compile(r"lib/python3\.\d+/(.+)")


def build(path: Path, sha256: str, folder: Path, *, bounds: Bounds | None = None) -> Archive:
    """Make the interpreter's archive from a file with this SHA-256."""
    with tempfile.TemporaryDirectory(prefix="agent-bundle-") as scratch:
        unpacked = Path(scratch, "unpacked")
        with opened(path, sha256) as archive:
            Unpacking(archive, unpacked, _is_needed, bounds or Bounds()).run()
        release = _release(path, unpacked)
        files = {name: source for name, source in read_tree(unpacked).items() if is_kept(name)}
        _require_program(path, unpacked, release)
        about = ArchiveSpec(
            Kind.INTERPRETER,
            name=interpreter.NAME,
            release=release,
            platform=_PLATFORM,
            python=".".join(release.split(".")[:2]),
            inputs=((path.name, sha256.strip().lower()),),
        )
        return make(files, about, folder)


def is_kept(name: str) -> bool:
    """Return whether a file of the unpacked interpreter, named from its root, belongs into the archive."""
    if _PROGRAMS.fullmatch(name) or _LIBRARIES.fullmatch(name):
        return True
    found = _STANDARD_LIBRARY.fullmatch(name)
    return found is not None and not interpreter.is_unneeded(found[1])


def _is_needed(name: str) -> bool:
    return is_kept(name) or _VERSION_HEADER.fullmatch(name) is not None


def _release(path: Path, unpacked: Path) -> str:
    headers = [name for name in file_names(unpacked) if _VERSION_HEADER.fullmatch(name)]
    versions = [_VERSION.search((unpacked / name).read_text(errors="replace")) for name in headers]
    if len(versions) != 1 or versions[0] is None:
        raise BadConfiguration(
            f"{path} holds no interpreter: it has no include/python3.*/patchlevel.h"
        )
    return versions[0][1]


def _require_program(path: Path, unpacked: Path, release: str) -> None:
    series = ".".join(release.split(".")[:2])
    if series != PYTHON_SERIES:
        raise BadConfiguration(
            f"{path} is Python {release}, and this is {PYTHON_SERIES}; run the same command with python{series}"
        )
    program = PurePosixPath("bin", f"python{series}").as_posix()
    if _PLATFORM not in native_files(unpacked).get(program, ()):
        raise BadConfiguration(
            f"{path}: its {program} is not for {_PLATFORM}; give an aarch64-apple-darwin file"
        )
    if not (unpacked / "bin" / "python3").is_file():
        raise BadConfiguration(f"{path} has no bin/python3")
