"""The agent's two archives for this Linux machine, from the interpreter and the packages that run this program.

Tests and simulated Macs install them as real Macs get theirs. Made once per content, in a folder that the caller chooses.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from bramley.app.agent_bundle import bytecode, code, interpreter, keeping, packages, tree
from bramley.app.agent_bundle.archive import FAST, SMALL, About, Archive, pack
from bramley.host.agent_archive import Kind


@dataclass(frozen=True, slots=True)
class Pair:
    """An interpreter, and code that was built for it."""

    interpreter: Archive
    code: Archive


def build(folder: Path) -> Pair:
    """Make both archives in a folder."""
    made = _interpreter(interpreter.tree_of_this_python(), folder)
    files, about = _code(made)
    return Pair(made, make(files, about, folder, level=FAST))


def cached(cache: Path) -> Pair:
    """Return both archives from a cache, made now if they are not in it; archives long unused are dropped."""
    found = interpreter.tree_of_this_python()
    made = keeping.once(cache, Kind.INTERPRETER, found, lambda folder: _interpreter(found, folder))
    files, about = _code(made)
    return Pair(
        made,
        keeping.once(
            cache, Kind.CODE, files, lambda folder: make(files, about, folder, level=FAST)
        ),
    )


def _interpreter(found: tree.Tree, folder: Path) -> Archive:
    about = About(
        Kind.INTERPRETER,
        name=interpreter.NAME,
        release=interpreter.RELEASE,
        platform=interpreter.own_platform(),
        python=bytecode.SERIES,
    )
    return make(found, about, folder, level=FAST)


def _code(made: Archive) -> tuple[dict[str, tree.Source], About]:
    found = code.imports()
    used = {one: packages.files_of(one) for one in packages.installed(found.foreign)}
    files = {name: source for each in used.values() for name, source in each.items()}
    about = About(
        Kind.CODE,
        name=code.NAME,
        release=code.release(),
        platform=made.manifest.platform,
        python=made.manifest.python,
        interpreter=made.manifest.version,
        inputs=tuple((f"{one.name} {one.version}", tree.content(used[one])) for one in used),
    )
    whole = code.tree_with(files, made.manifest.version, modules=found.modules.values())
    return whole, about


def make(files: tree.Tree, about: About, folder: Path, *, level: int = SMALL) -> Archive:
    """Lay out a tree, compile its modules and pack it into a folder."""
    with tempfile.TemporaryDirectory(prefix="agent-bundle-") as scratch:
        stage = Path(scratch, "stage")
        tree.lay_out(files, stage)
        bytecode.add(stage, about.python)
        return pack(stage, about, folder, level=level)
