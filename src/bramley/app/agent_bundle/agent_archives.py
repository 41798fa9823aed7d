"""Both agent archives of this Linux machine, built from the running interpreter and its installed packages.

Tests and simulated Macs install them in the same way as a real Mac installs its own. Archives are cached by content; several
processes may use one cache, in which entries appear atomically and are deleted after two weeks without use.
`bramley up --bootstrap` builds them in a child process, `python -m bramley.app.agent_bundle.agent_archives CACHE`, which can be
terminated while it works; a thread cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from bramley.app.agent_bundle import code, interpreter
from bramley.app.agent_bundle.archive import (
    FAST,
    PYTHON_SERIES,
    Archive,
    ArchiveSpec,
    Source,
    Tree,
    content_hash,
    make,
)
from bramley.base.errors import BadConfiguration, BramleyError, TimedOut
from bramley.host import agent_archive
from bramley.host.agent_archive import Kind

UNUSED_AFTER_SECONDS = 14 * 24 * 3600
_BUILD_TIMEOUT = timedelta(minutes=10)
# The terminated child deletes its scratch folders first, on a machine that may be busy.
_TERMINATE_TIMEOUT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class AgentArchives:
    """An interpreter, and the agent's code that was built for it."""

    interpreter: Archive
    code: Archive


def build(folder: Path) -> AgentArchives:
    """Build both archives in a folder."""
    python = _build_interpreter(interpreter.running_interpreter_tree(), folder)
    files, spec = _code(python)
    return AgentArchives(python, make(files, spec, folder, level=FAST))


def cached(cache: Path) -> AgentArchives:
    """Return both archives from a cache, after building those that are missing."""
    tree = interpreter.running_interpreter_tree()
    python = cached_archive(
        cache, Kind.INTERPRETER, tree, lambda folder: _build_interpreter(tree, folder)
    )
    files, spec = _code(python)
    agent_code = cached_archive(
        cache, Kind.CODE, files, lambda folder: make(files, spec, folder, level=FAST)
    )
    return AgentArchives(python, agent_code)


def _build_interpreter(tree: Tree, folder: Path) -> Archive:
    spec = ArchiveSpec(
        Kind.INTERPRETER,
        name=interpreter.NAME,
        release=interpreter.RELEASE,
        platform=interpreter.current_platform(),
        python=PYTHON_SERIES,
    )
    return make(tree, spec, folder, level=FAST)


def _code(python: Archive) -> tuple[dict[str, Source], ArchiveSpec]:
    imports = code.agent_imports()
    files_by_package = {
        package: code.distribution_files(package)
        for package in code.required_distributions(imports.third_party)
    }
    files = {name: source for each in files_by_package.values() for name, source in each.items()}
    spec = ArchiveSpec(
        Kind.CODE,
        name=code.NAME,
        release=code.release(),
        platform=python.manifest.platform,
        python=python.manifest.python,
        interpreter=python.manifest.version,
        inputs=tuple(
            (f"{package.name} {package.version}", content_hash(each))
            for package, each in files_by_package.items()
        ),
    )
    tree = code.code_tree(files, python.manifest.version, modules=imports.modules.values())
    return tree, spec


def cached_archive(
    cache: Path, kind: Kind, files: Tree, build: Callable[[Path], Archive]
) -> Archive:
    """Return the archive of these files from the cache; `build` makes it in a folder if it is missing or damaged."""
    cache.mkdir(parents=True, exist_ok=True)
    entry = cache / f"{kind}-{_cache_key(files)}"
    _delete_unused(cache, keep=entry)
    archive = _find_archive(entry, kind) or _add_entry(entry, kind, build)
    os.utime(entry)
    return archive


def is_cached(cache: Path) -> bool:
    """Return whether a cache holds archives of both kinds, of any version."""
    return all(any(cache.glob(f"{kind}-*/*.tar.gz")) for kind in Kind)


def _add_entry(entry: Path, kind: Kind, build: Callable[[Path], Archive]) -> Archive:
    with tempfile.TemporaryDirectory(prefix=".making-", dir=entry.parent) as scratch:
        build(Path(scratch, "made"))
        # Build first, then check the entry again: another process may have added a complete one meanwhile, which stays.
        if entry.exists() and _find_archive(entry, kind) is None:
            shutil.rmtree(entry, ignore_errors=True)
        # The rename fails if another process was faster; its archive has the same content.
        with contextlib.suppress(OSError):
            Path(scratch, "made").rename(entry)
    archive = _find_archive(entry, kind)
    if archive is None:
        raise BadConfiguration(f"the cache entry {entry} is not usable; delete it and try again")
    return archive


def _cache_key(files: Tree) -> str:
    """Return a key over the files, the code that packs them, and the Python that compiles them."""
    packer = content_hash({path.name: path for path in Path(__file__).parent.glob("*.py")})
    inputs = f"{content_hash(files)} {packer} {sys.version} {zlib.ZLIB_RUNTIME_VERSION}"
    return hashlib.sha256(inputs.encode()).hexdigest()[:16]


def _find_archive(entry: Path, kind: Kind) -> Archive | None:
    for path in entry.glob("*.tar.gz"):
        with contextlib.suppress(BadConfiguration, OSError):
            return Archive.of(path, agent_archive.read(path, kind))
    return None


def _delete_unused(cache: Path, *, keep: Path) -> None:
    oldest = time.time() - UNUSED_AFTER_SECONDS
    for entry in cache.iterdir():
        # Another process may delete it first.
        with contextlib.suppress(FileNotFoundError):
            if entry != keep and entry.stat().st_mtime < oldest:
                shutil.rmtree(entry, ignore_errors=True)


async def cached_by_child_process(cache: Path) -> AgentArchives:
    """Return both archives from a cache, built by a child process; when cancelled, nothing half built remains."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, str(cache)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Its own session: Ctrl-C reaches the parent only, which then terminates the child.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_BUILD_TIMEOUT.total_seconds()):
            paths, message = await process.communicate()
    except TimeoutError as error:
        minutes = _BUILD_TIMEOUT.total_seconds() / 60
        raise TimedOut(f"not done within {minutes:.0f} minutes") from error
    finally:
        await _terminate(process)
    if process.returncode:
        raise BadConfiguration(message.decode(errors="replace").strip()[-500:])
    return await asyncio.to_thread(_read, paths.decode().splitlines())


async def _terminate(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_TERMINATE_TIMEOUT.total_seconds()):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()


def _read(paths: list[str]) -> AgentArchives:
    python, agent_code = (Path(path) for path in paths)
    return AgentArchives(
        Archive.of(python, agent_archive.read(python, Kind.INTERPRETER)),
        Archive.of(agent_code, agent_archive.read(agent_code, Kind.CODE)),
    )


def main(cache: str) -> int:
    """Build both archives in this process and print their paths."""
    # An exception instead of sudden death, so that scratch folders are deleted.
    signal.signal(signal.SIGTERM, _exit)
    try:
        archives = cached(Path(cache))
    except (BramleyError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - read by the parent process
        return 1
    print(archives.interpreter.path, archives.code.path, sep="\n")  # noqa: T201 - read by the parent process
    return 0


def _exit(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
