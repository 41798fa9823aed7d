"""The interpreter that runs this program, as a tree that runs from any folder: the Linux half of the agent's archives.

Taken are the program, its library and the standard library, without anything that was installed beside them. Libraries of the
system are not: the simulated Macs share those of this machine.
"""

from __future__ import annotations

import os
import platform as machine
import sys
import sysconfig
from pathlib import Path, PurePosixPath

from bramley.api.names import agent
from bramley.app.agent_bundle import elf, pruning, tree
from bramley.app.agent_bundle.bytecode import SERIES
from bramley.base.errors import BadConfiguration
from bramley.host.agent_archive import Platform

NAME = f"{agent.NAME}-python"
# A plus at the end says that it was built between two releases; ours has another meaning.
RELEASE = machine.python_version().rstrip("+")
_PROGRAM = f"python{SERIES}"
_MACHINES = {"x86_64": Platform.LINUX_X86_64, "aarch64": Platform.LINUX_ARM64}


def own_platform() -> Platform:
    """Return the platform that this machine is; refuses one whose interpreter cannot be moved."""
    found = _MACHINES.get(machine.machine()) if sys.platform == "linux" else None
    if found is None:
        raise BadConfiguration(
            f"archives of the running Python can be made on Linux, not on {sys.platform} {machine.machine()};"
            " for Macs there is python -m tools.agent_bundle interpreter"
        )
    return found


def tree_of_this_python() -> dict[str, tree.Source]:
    """Return the tree of the running interpreter, with its binaries rewritten to look beside themselves."""
    own_platform()
    prefix, library = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    program = prefix / "bin" / _PROGRAM
    if not (program.is_file() and (library / "os.py").is_file()):
        raise BadConfiguration(f"the running Python has no {program} or no {library}/os.py")
    found: dict[str, tree.Source] = {
        f"bin/{_PROGRAM}": program,
        "bin/python3": tree.Link(_PROGRAM),
        **{f"lib/{path.name}": path for path in _own_libraries(prefix)},
        **_standard_library(library),
    }
    return {name: _movable(name, source, prefix) for name, source in found.items()}


def _own_libraries(prefix: Path) -> list[Path]:
    """Return the interpreter itself, where it is a library that lies in its own tree."""
    return sorted(path for path in (prefix / "lib").glob(f"lib{_PROGRAM}*.so.*") if path.is_file())


def _standard_library(library: Path) -> dict[str, tree.Source]:
    found: dict[str, tree.Source] = {}
    for place, folders, files in os.walk(library):
        below = Path(place).relative_to(library).as_posix()
        folders[:] = [each for each in folders if not pruning.is_unneeded(f"{below}/{each}/x")]
        for name in files:
            path = Path(place, name)
            if path.is_file() and not pruning.is_unneeded(f"{below}/{name}"):
                # Named by the folder that Python looks for: `lib64` on some systems.
                found[str(PurePosixPath(sys.platlibdir, _PROGRAM, below, name))] = path
    return found


def _movable(name: str, source: tree.Source, prefix: Path) -> tree.Source:
    if not isinstance(source, Path) or not (name.startswith("bin/") or ".so" in name):
        return source
    contents = source.read_bytes()
    beside = os.path.relpath("lib", PurePosixPath(name).parent)
    changed = elf.with_search_path(
        contents, lambda before: relative(before, prefix / "lib", f"$ORIGIN/{beside}")
    )
    return source if changed == contents else changed


def relative(before: str, own: Path, origin: str) -> str:
    """Replace the interpreter's own folder in a search path; those of other libraries stay."""
    own_names = {str(own), str(own.resolve())}
    return ":".join(
        origin if os.path.normpath(each) in own_names else each for each in before.split(":")
    )
