"""The files of the agent's code archive: our modules, the third-party packages they import, and the launcher script.

Modules are found by following the import statements of the sources, also those inside functions; imports for type checkers
alone are ignored. So the archive changes when the agent changes, and not with each change of the servers in the same package.
The launcher needs no environment and no PATH. It resolves the `current` link first, so that a running agent keeps loading
modules of its own release after the link has changed, and finds the interpreter beside the folder of the release.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path, PurePosixPath

import bramley
from bramley.api.names import agent
from bramley.app.agent_bundle.archive import Source, Tree
from bramley.base.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class ImportClosure:
    """The modules and packages that one module imports, directly or indirectly."""

    # Files of our modules by name.
    modules: dict[str, Path] = field(default_factory=dict)
    # Top-level import names, without the standard library.
    third_party: set[str] = field(default_factory=set)


def import_closure(start: str, sources: Path) -> ImportClosure:
    """Follow the imports of a module; `sources` is the folder of its top-level package."""
    package, closure = start.partition(".")[0], ImportClosure()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        path = _file(name, sources)
        if name in closure.modules or path is None:
            continue
        closure.modules[name] = path
        for imported in {name.rpartition(".")[0], *_imports(path)} - {""}:
            top = imported.partition(".")[0]
            if top == package:
                waiting.append(imported)
            elif top not in sys.stdlib_module_names:
                closure.third_party.add(top)
    if not closure.modules:
        raise BadConfiguration(f"there is no module {start} in {sources}")
    return closure


def _file(name: str, sources: Path) -> Path | None:
    """Return the file of a module; None for a name that is not a module."""
    base = sources.joinpath(*name.split("."))
    candidates = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next((path for path in candidates if path.is_file()), None)


def _imports(path: Path) -> Iterator[str]:
    waiting: list[ast.AST] = [ast.parse(path.read_bytes(), str(path))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imports_from(node, path)
        elif isinstance(node, ast.If) and _is_for_type_checkers(node.test):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _imports_from(node: ast.ImportFrom, path: Path) -> Iterator[str]:
    if node.level or node.module is None:
        raise BadConfiguration(
            f"{path}:{node.lineno} has a relative import; use the full module name"
        )
    yield node.module
    # Each imported name may itself be a module of that package.
    yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_for_type_checkers(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


# Sources of native modules, type stubs and tests, which an agent never loads.
_UNNEEDED = re.compile(
    r".*\.(?:pyi|pyx|pxd|pxi|c|cc|cpp|h|hpp|pyc|typed|hash)"
    r"|(?:.*/)?_test\w*\.[\w.-]*so"
    r"|(?:.*/)?(?:tests?|__pycache__|\.hash)/.*"
)
# Metadata and licences. Other files of the dist-info folder describe the installation on this machine.
_METADATA = re.compile(
    r"[^/]+\.dist-info/(?:METADATA|(?:licenses/.*)?(?:LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*)"
)


def is_needed(name: str) -> bool:
    """Return whether a file of a wheel, named by its installed path, belongs into the archive."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return False
    if path.parts[0].endswith((".dist-info", ".data")):
        return _METADATA.fullmatch(name) is not None
    return _UNNEEDED.fullmatch(name) is None


def required_distributions(imported: Iterable[str]) -> list[Distribution]:
    """Return the installed distributions of these import names and their requirements, sorted by name."""
    by_import = packages_distributions()
    if missing := set(imported) - by_import.keys():
        raise BadConfiguration(
            f"the agent imports {', '.join(sorted(missing))}, which is not installed; install it with pip"
        )
    waiting = [name for top in imported for name in by_import[top]]
    distributions: dict[str, Distribution] = {}
    while waiting:
        package = distribution(waiting.pop())
        if normalized_name(package.name) not in distributions:
            distributions[normalized_name(package.name)] = package
            waiting += _required(package.requires or ())
    return [distributions[name] for name in sorted(distributions)]


def normalized_name(name: str) -> str:
    """Return the normalized name of a distribution, as PEP 503 defines it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(requirements: Iterable[str]) -> Iterator[str]:
    for text in requirements:
        requirement, _, marker = text.partition(";")
        match = re.match(r"[\w.-]+", requirement)
        if match and "extra" not in marker and (not marker or _is_installed(match[0])):
            yield match[0]


def _is_installed(name: str) -> bool:
    # A requirement whose environment marker holds is installed.
    try:
        return bool(distribution(name).version)
    except PackageNotFoundError:
        return False


def distribution_files(package: Distribution) -> dict[str, Source]:
    """Return the files of an installed distribution that belong into the archive."""
    names = [file for file in package.files or () if is_needed(file.as_posix())]
    if not names:
        raise BadConfiguration(
            f"{package.name} has no list of installed files; install it with pip"
        )
    return {file.as_posix(): Path(str(file.locate())) for file in names}


NAME = agent.NAME
START = agent.MODULE
ENTRY = f"bin/{agent.NAME}"
_LIBRARY = "lib"
_PACKAGE = Path(bramley.__file__).parent

_PROGRAM = """#!/bin/sh
# Starts the agent; needs no environment and no PATH, and may be called through symbolic links.
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


def agent_imports() -> ImportClosure:
    """Return the imports of the agent."""
    return import_closure(START, _PACKAGE.parent)


def code_tree(packages: Tree, interpreter: str, *, modules: Iterable[Path]) -> dict[str, Source]:
    """Return the tree of our modules, the files of third-party packages, and a launcher for this interpreter version."""
    program = _PROGRAM.replace("@interpreter@", interpreter).replace("@name@", NAME)
    libraries = {**packages, **_own_files(set(modules))}
    return {
        ENTRY: program.encode(),
        "start": _STARTER.encode(),
        **{f"{_LIBRARY}/{name}": source for name, source in libraries.items()},
    }


def _own_files(modules: set[Path]) -> dict[str, Source]:
    """Return our modules, their data files, and package metadata with our version."""
    paths = [*modules, *_data_files(modules)]
    metadata = f"Metadata-Version: 2.1\nName: {_PACKAGE.name}\nVersion: {release()}\n"
    return {
        f"{_PACKAGE.name}-{release()}.dist-info/METADATA": metadata.encode(),
        **{path.relative_to(_PACKAGE.parent).as_posix(): path for path in paths},
    }


def _data_files(modules: Iterable[Path]) -> Iterator[Path]:
    for folder in {path.parent for path in modules}:
        for path in folder.iterdir():
            if path.is_file() and path.suffix not in {".py", ".pyc", ".typed"}:
                yield path
