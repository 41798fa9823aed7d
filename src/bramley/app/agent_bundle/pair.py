"""The agent's two archives for this Linux machine, from the interpreter and the packages that run this program.

Tests and simulated Macs install them as real Macs get theirs. Made once per content, in a folder that the caller chooses.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bramley.app.agent_bundle import bytecode, code, interpreter, packages, tree
from bramley.app.agent_bundle.archive import FAST, SMALL, About, Archive, pack
from bramley.base.errors import BadConfiguration
from bramley.host import agent_archive
from bramley.host.agent_archive import Kind

_UNUSED_AFTER_SECONDS = 14 * 24 * 3600


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
    cache.mkdir(parents=True, exist_ok=True)
    found = interpreter.tree_of_this_python()
    made = _once(cache, Kind.INTERPRETER, found, lambda folder: _interpreter(found, folder))
    files, about = _code(made)
    return Pair(
        made, _once(cache, Kind.CODE, files, lambda folder: make(files, about, folder, level=FAST))
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


def _once(
    cache: Path, kind: Kind, files: tree.Tree, build_in: Callable[[Path], Archive]
) -> Archive:
    """Return the archive of these files, and make it if no process has made it before."""
    place = cache / f"{kind}-{_key(files)}"
    _drop_unused(cache, besides=place)
    found = _found(place, kind)
    if found is not None:
        os.utime(place)
        return found
    with tempfile.TemporaryDirectory(prefix=".making-", dir=cache) as scratch:
        build_in(Path(scratch, "made"))
        shutil.rmtree(place, ignore_errors=True)
        # Where another process was faster, its archive is as good as ours.
        with contextlib.suppress(OSError):
            Path(scratch, "made").rename(place)
    found = _found(place, kind)
    if found is None:
        raise BadConfiguration(f"{place} cannot be used; remove it and try again")
    return found


def _key(files: tree.Tree) -> str:
    """Return what changes with the files, with how they are packed, and with the Python that compiles them."""
    own = tree.content({path.name: path for path in Path(__file__).parent.glob("*.py")})
    whole = f"{tree.content(files)} {own} {sys.version} {zlib.ZLIB_RUNTIME_VERSION}"
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _found(place: Path, kind: Kind) -> Archive | None:
    for path in place.glob("*.tar.gz"):
        with contextlib.suppress(BadConfiguration, OSError):
            return Archive.of(path, agent_archive.read(path, kind))
    return None


def _drop_unused(cache: Path, *, besides: Path) -> None:
    oldest = time.time() - _UNUSED_AFTER_SECONDS
    for place in cache.iterdir():
        if place != besides and place.stat().st_mtime < oldest:
            shutil.rmtree(place, ignore_errors=True)
