"""The running Linux interpreter as a tree that works from any folder.

It holds the executable, its shared library and the standard library without tests, headers, GUI modules and installed
packages. The rest of the standard library stays complete, so that the interpreter's archive does not change with what the
agent imports. Search paths in ELF binaries are rewritten relative to the binary. System libraries are not included: simulated
Macs share those of this machine.
"""

from __future__ import annotations

import os
import platform as machine
import re
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bramley.api.names import agent
from bramley.app.agent_bundle.archive import PYTHON_SERIES, Link, Source
from bramley.base.errors import BadConfiguration
from bramley.host.agent_archive import Platform

_MAGIC = b"\x7fELF\x02\x01"  # 64-bit, little-endian
_LOAD, _DYNAMIC = 1, 2
_END, _STRINGS, _RPATH, _RUNPATH = 0, 5, 15, 29


def is_elf(contents: bytes) -> bool:
    """Return whether this is a binary whose search path can be rewritten."""
    return contents.startswith(_MAGIC)


def elf_search_path(contents: bytes) -> str:
    """Return the library search path of a binary, folders separated by colons; empty if it has none."""
    offset = next(_search_path_offsets(contents), None)
    return _text(contents, offset).decode() if offset is not None else ""


def with_search_path(contents: bytes, change: Callable[[str], str]) -> bytes:
    """Return the binary with its library search path changed in place; a longer path is refused."""
    changed = bytearray(contents)
    # Two entries may share one string, which is changed once.
    for offset in sorted(set(_search_path_offsets(contents))):
        before = _text(contents, offset)
        after = change(before.decode()).encode()
        if len(after) > len(before):
            raise BadConfiguration(
                f"{after.decode()} is longer than {before.decode()}; use a Python with a longer prefix"
            )
        changed[offset : offset + len(before)] = after.ljust(len(before), b"\0")
    return bytes(changed)


def _text(contents: bytes, offset: int) -> bytes:
    return contents[offset : contents.index(b"\0", offset)]


@dataclass(frozen=True, slots=True)
class _Segment:
    type: int
    offset: int
    address: int
    size: int


def _search_path_offsets(contents: bytes) -> Iterator[int]:
    """Yield the offsets of the RPATH and RUNPATH strings."""
    if not is_elf(contents):
        return
    segments = list(_segments(contents))
    for dynamic in (segment for segment in segments if segment.type == _DYNAMIC):
        entries = list(_entries(contents, dynamic))
        strings = dict(entries).get(_STRINGS)
        for tag, value in entries:
            if strings is not None and tag in {_RPATH, _RUNPATH}:
                yield _file_offset(segments, strings + value)


def _segments(contents: bytes) -> Iterator[_Segment]:
    (table,) = struct.unpack_from("<Q", contents, 32)
    entry, count = struct.unpack_from("<HH", contents, 54)
    for number in range(count):
        type, _, offset, address, _, size = struct.unpack_from(
            "<IIQQQQ", contents, table + number * entry
        )
        yield _Segment(type, offset, address, size)


def _entries(contents: bytes, dynamic: _Segment) -> Iterator[tuple[int, int]]:
    for offset in range(dynamic.offset, dynamic.offset + dynamic.size, 16):
        tag, value = struct.unpack_from("<QQ", contents, offset)
        if tag == _END:
            return
        yield tag, value


def _file_offset(segments: list[_Segment], address: int) -> int:
    for segment in segments:
        start = segment.address
        if segment.type == _LOAD and start <= address < start + segment.size:
            return address - start + segment.offset
    raise BadConfiguration(
        "a binary of the running Python is damaged: its string table is in no loaded segment"
    )


_FOLDERS = frozenset(
    {
        *("test", "tests", "__phello__"),
        *("idlelib", "tkinter", "turtledemo"),
        *("ensurepip", "distutils", "venv", "lib2to3", "pydoc_data"),
        *("site-packages", "dist-packages", "__pycache__"),
    }
)
_FOLDER_PATTERN = re.compile(r"config-[\w.-]+")
_FILES = re.compile(
    r"(?:turtle|sitecustomize|usercustomize|__hello__)\.py"
    r"|(?:_tkinter|_test\w*|_ctypes_test|_xxtest\w*|xxlimited\w*)\.[\w.-]*(?:so|dylib)"
    r"|EXTERNALLY-MANAGED|.*\.(?:pyc|pyo|a|o|exe|orig)"
)


def is_unneeded(name: str) -> bool:
    """Return whether an agent does not need a file of the standard library, named relative to that folder."""
    path = PurePosixPath(name)
    in_folder = any(part in _FOLDERS or _FOLDER_PATTERN.fullmatch(part) for part in path.parts[:-1])
    return in_folder or _FILES.fullmatch(path.name) is not None


NAME = f"{agent.NAME}-python"
# Without the plus of a build between two releases: in our versions a plus separates the content hash.
RELEASE = machine.python_version().rstrip("+")
_PROGRAM = f"python{PYTHON_SERIES}"
_MACHINES = {"x86_64": Platform.LINUX_X86_64, "aarch64": Platform.LINUX_ARM64}


def current_platform() -> Platform:
    """Return the platform of this machine; refuse one whose interpreter cannot be relocated."""
    platform_name = _MACHINES.get(machine.machine()) if sys.platform == "linux" else None
    if platform_name is None:
        raise BadConfiguration(
            f"archives of the running Python can be built on Linux only, not on {sys.platform} {machine.machine()};"
            " for Macs use python -m tools.agent_bundle interpreter"
        )
    return platform_name


def running_interpreter_tree() -> dict[str, Source]:
    """Return the tree of the running interpreter, with relative search paths in its binaries."""
    current_platform()
    prefix, library = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    program = prefix / "bin" / _PROGRAM
    if not (program.is_file() and (library / "os.py").is_file()):
        raise BadConfiguration(f"the running Python has no {program} or no {library}/os.py")
    tree: dict[str, Source] = {
        f"bin/{_PROGRAM}": program,
        "bin/python3": Link(_PROGRAM),
        **{f"lib/{path.name}": path for path in _own_libraries(prefix)},
        **_standard_library(library),
    }
    return {name: _relocated(name, source, prefix) for name, source in tree.items()}


def _own_libraries(prefix: Path) -> list[Path]:
    """Return the shared library of the interpreter, if it is linked to one below its own prefix."""
    return sorted(path for path in (prefix / "lib").glob(f"lib{_PROGRAM}*.so.*") if path.is_file())


def _standard_library(library: Path) -> dict[str, Source]:
    tree: dict[str, Source] = {}
    for parent, folders, files in os.walk(library):
        below = Path(parent).relative_to(library).as_posix()
        folders[:] = [each for each in folders if not is_unneeded(f"{below}/{each}/x")]
        for name in files:
            path = Path(parent, name)
            if path.is_file() and not is_unneeded(f"{below}/{name}"):
                # In the folder in which Python searches: `lib64` on some systems.
                tree[str(PurePosixPath(sys.platlibdir, _PROGRAM, below, name))] = path
    return tree


def _relocated(name: str, source: Source, prefix: Path) -> Source:
    if not isinstance(source, Path) or not (name.startswith("bin/") or ".so" in name):
        return source
    contents = source.read_bytes()
    beside = os.path.relpath("lib", PurePosixPath(name).parent)
    changed = with_search_path(
        contents, lambda before: relative_search_path(before, prefix / "lib", f"$ORIGIN/{beside}")
    )
    return source if changed == contents else changed


def relative_search_path(before: str, library: Path, origin: str) -> str:
    """Replace the interpreter's own folder in a search path by `origin`; other folders stay."""
    own_names = {str(library), str(library.resolve())}
    return ":".join(
        origin if os.path.normpath(each) in own_names else each for each in before.split(":")
    )
