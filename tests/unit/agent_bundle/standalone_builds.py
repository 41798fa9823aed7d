"""Archives with the layout of python-build-standalone for Macs, with stand-ins for binaries."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.unit.agent_bundle.binaries import mach_o

SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"
RELEASE = f"{SERIES}.99"
NAME = f"cpython-{RELEASE}+20261101-aarch64-apple-darwin-install_only.tar.gz"
LIBRARY = f"lib/python{SERIES}"

KEPT = {
    f"bin/python{SERIES}": mach_o(body=b"interpreter"),
    f"lib/libpython{SERIES}.dylib": mach_o(body=b"library"),
    f"{LIBRARY}/LICENSE.txt": b"licence\n",
    f"{LIBRARY}/os.py": b"name = 'posix'\n",
    f"{LIBRARY}/asyncio/__init__.py": b"VALUES = {'one', 'two', 'three'}\n",
    f"{LIBRARY}/lib-dynload/_ssl.cpython-darwin.so": mach_o(body=b"ssl"),
}
DROPPED = {
    f"bin/pip{SERIES}": b"#!/bin/sh\n",
    f"bin/idle{SERIES}": b"#!/bin/sh\n",
    f"include/python{SERIES}/Python.h": b"",
    f"include/python{SERIES}/patchlevel.h": f'#define PY_VERSION  "{RELEASE}"\n'.encode(),
    "lib/tcl8.6/init.tcl": b"",
    "lib/libtcl8.6.dylib": mach_o(),
    "lib/pkgconfig/python3.pc": b"",
    "share/man/man1/python3.1": b"",
    f"{LIBRARY}/__pycache__/os.cpython-3.pyc": b"with a time in it",
    f"{LIBRARY}/config-{SERIES}-darwin/Makefile": b"",
    f"{LIBRARY}/ensurepip/__init__.py": b"",
    f"{LIBRARY}/idlelib/idle.py": b"",
    f"{LIBRARY}/lib-dynload/_testcapi.cpython-darwin.so": mach_o(),
    f"{LIBRARY}/lib-dynload/_tkinter.cpython-darwin.so": mach_o(),
    f"{LIBRARY}/site-packages/pip/__init__.py": b"",
    f"{LIBRARY}/test/test_os.py": b"",
    f"{LIBRARY}/tkinter/__init__.py": b"",
    f"{LIBRARY}/turtle.py": b"",
}
LINKS = {"bin/python3": f"python{SERIES}", "bin/python": f"python{SERIES}"}


@dataclass(frozen=True, slots=True)
class StandaloneBuild:
    """An archive and its SHA-256."""

    path: Path
    sha256: str


def member(name: str, change: Callable[[tarfile.TarInfo], None] | None = None) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    if change is not None:
        change(entry)
    return entry


def write_build(
    folder: Path,
    *,
    files: Mapping[str, bytes] | None = None,
    extra: tuple[tarfile.TarInfo, ...] = (),
) -> StandaloneBuild:
    """Write an archive; `files` replaces or adds files, `extra` are additional, possibly invalid members."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, contents in {**DROPPED, **KEPT, **(files or {})}.items():
            entry = member(f"python/{name}")
            entry.size = len(contents)
            archive.addfile(entry, io.BytesIO(contents))
        for name, target in LINKS.items():
            link = member(f"python/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for entry in extra:
            archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    return write_file(folder, gzip.compress(packed.getvalue(), 1))


def write_file(folder: Path, contents: bytes) -> StandaloneBuild:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(contents)
    return StandaloneBuild(folder / NAME, hashlib.sha256(contents).hexdigest())
