"""What the agent imports, read from the sources: its own modules, and the packages of others.

Every import counts, also one inside a function, which happens only when it is needed. Only what is imported for type checkers
alone does not. So an archive changes when the agent does, and not with each change of the servers in the same package.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bramley.base.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class Closure:
    """What one module needs, directly or not."""

    # Our modules by name, each with its file.
    modules: dict[str, Path] = field(default_factory=dict)
    # Top-level names of others' packages; Python's own are left out.
    foreign: set[str] = field(default_factory=set)


def of(start: str, sources: Path) -> Closure:
    """Follow the imports of a module; `sources` is the folder that holds its top-level package."""
    package, found = start.partition(".")[0], Closure()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        path = _file(name, sources)
        if name in found.modules or path is None:
            continue
        found.modules[name] = path
        for other in {name.rpartition(".")[0], *_imports(path)} - {""}:
            top = other.partition(".")[0]
            if top == package:
                waiting.append(other)
            elif top not in sys.stdlib_module_names:
                found.foreign.add(top)
    if not found.modules:
        raise BadConfiguration(f"there is no module {start} in {sources}")
    return found


def _file(name: str, sources: Path) -> Path | None:
    """Return the file of a module; none for a name that a module defines."""
    place = sources.joinpath(*name.split("."))
    candidates = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((path for path in candidates if path.is_file()), None)


def _imports(path: Path) -> Iterator[str]:
    waiting: list[ast.AST] = [ast.parse(path.read_bytes(), str(path))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imports_from(node, path)
        elif isinstance(node, ast.If) and _is_for_type_checkers(node.test):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _imports_from(node: ast.ImportFrom, path: Path) -> Iterator[str]:
    if node.level or node.module is None:
        raise BadConfiguration(f"{path}:{node.lineno} imports relatively; name the whole module")
    yield node.module
    # Each name may be a module of that package.
    yield from (f"{node.module}.{one.name}" for one in node.names)


def _is_for_type_checkers(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
