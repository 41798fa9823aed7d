"""Archives that were made before, kept by what they are made of: several processes may look and make at once.

A folder in the cache appears whole. What nobody has asked for in two weeks goes with the next look.
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
from pathlib import Path

from bramley.app.agent_bundle import tree
from bramley.app.agent_bundle.archive import Archive
from bramley.base.errors import BadConfiguration
from bramley.host import agent_archive
from bramley.host.agent_archive import Kind

UNUSED_AFTER_SECONDS = 14 * 24 * 3600


def once(cache: Path, kind: Kind, files: tree.Tree, make: Callable[[Path], Archive]) -> Archive:
    """Return the archive of these files; it is made in a folder of the cache if nobody has made it before."""
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"{kind}-{_key(files)}"
    _drop_unused(cache, besides=place)
    found = _found(place, kind) or _made(place, kind, make)
    os.utime(place)
    return found


def _made(place: Path, kind: Kind, make: Callable[[Path], Archive]) -> Archive:
    with tempfile.TemporaryDirectory(prefix=".making-", dir=place.parent) as scratch:
        make(Path(scratch, "made"))
        # In this order: what another process puts there meanwhile appears whole, and stays.
        if place.exists() and _found(place, kind) is None:
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
    oldest = time.time() - UNUSED_AFTER_SECONDS
    for place in cache.iterdir():
        # Another process may drop it first.
        with contextlib.suppress(FileNotFoundError):
            if place != besides and place.stat().st_mtime < oldest:
                shutil.rmtree(place, ignore_errors=True)
