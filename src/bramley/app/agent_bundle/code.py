"""The agent's code as a tree: our modules, the packages of others that they import, and the program that starts them.

The program needs no environment and no PATH, and looks for the interpreter beside the release's own folder, in the version
that the release was built for. It resolves the link that says which release runs, so that an agent keeps loading modules of its
own release after the link has moved on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import bramley
from bramley.api.names import agent
from bramley.app.agent_bundle import closure, tree

NAME = agent.NAME
START = agent.MODULE
ENTRY = f"bin/{agent.NAME}"
_LIBRARY = "lib"
_PACKAGE = Path(bramley.__file__).parent

_PROGRAM = """#!/bin/sh
# Starts the agent; needs no environment and no PATH, and may be called through links.
set -eu
unset CDPATH
program=$0
case $program in
*/*) ;;
*) program=./$program ;;
esac
while [ -L "$program" ]; do
    target=$(/usr/bin/readlink "$program")
    case $target in
    /*) program=$target ;;
    *) program=${program%/*}/$target ;;
    esac
done
release=$(cd -P -- "${program%/*}/.." && pwd)
python=${release%/*}/python/@interpreter@/bin/python3
if [ ! -x "$python" ]; then
    echo "@name@: $python is missing; install the interpreter that this release was built for" >&2
    exit 2
fi
exec "$python" -I -S -B -X utf8 "$release/start" "$@"
"""

_STARTER = f'''"""Starts the agent from the folder beside this file and from nowhere else."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{_LIBRARY}"))

from {START} import main

main()
'''


def release() -> str:
    """Return the version of our own package."""
    return bramley.__version__


def imports() -> closure.Closure:
    """Return what the agent imports."""
    return closure.of(START, _PACKAGE.parent)


def tree_with(
    packages: tree.Tree, interpreter: str, *, modules: Iterable[Path]
) -> dict[str, tree.Source]:
    """Return the whole tree: our modules, these files of others' packages, and a program that starts with this interpreter."""
    program = _PROGRAM.replace("@interpreter@", interpreter).replace("@name@", NAME)
    libraries = {**packages, **_own_files(set(modules))}
    return {
        ENTRY: program.encode(),
        "start": _STARTER.encode(),
        **{f"{_LIBRARY}/{name}": source for name, source in libraries.items()},
    }


def _own_files(modules: set[Path]) -> dict[str, tree.Source]:
    """Return our modules with what lies beside them, and the notes that tell our version."""
    paths = [*modules, *_data_beside(modules)]
    told = f"Metadata-Version: 2.1\nName: {_PACKAGE.name}\nVersion: {release()}\n"
    return {
        f"{_PACKAGE.name}-{release()}.dist-info/METADATA": told.encode(),
        **{path.relative_to(_PACKAGE.parent).as_posix(): path for path in paths},
    }


def _data_beside(modules: Iterable[Path]) -> Iterator[Path]:
    for folder in {path.parent for path in modules}:
        for path in folder.iterdir():
            if path.is_file() and path.suffix not in {".py", ".pyc", ".typed"}:
                yield path
