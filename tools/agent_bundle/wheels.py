"""The wheels that the agent's archive for Macs holds: fetched by pip as the lock pins them, and kept in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from bramley.app.agent_bundle import code
from bramley.app.agent_bundle.archive import Source
from bramley.base.errors import BadConfiguration
from tools.kube.programs import user_cache

LOCK = Path(__file__).parents[2] / "requirements" / "agent.txt"
# The oldest macOS on Apple silicon: what is built for it runs on every later one.
OLDEST_MAC = "macosx_11_0_arm64"
_WITHIN_SECONDS = 900
_LARGEST_FILE = 50_000_000


def folder(python: str, *, lock: Path = LOCK, cache: Path | None = None) -> Path:
    """Return where the wheels of the lock are kept, if they were fetched."""
    version = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    return (cache or user_cache() / "agent-wheels") / f"{python}-{OLDEST_MAC}-{version}"


def fetched(python: str, *, lock: Path = LOCK, cache: Path | None = None) -> list[Path]:
    """Return the wheels of the lock for a series of Python on Macs; the first call downloads them."""
    home = folder(python, lock=lock, cache=cache)
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=home.parent) as scratch:
            _download(lock, python, Path(scratch, "wheels"))
            # Where another process was faster, its wheels are the same.
            with contextlib.suppress(OSError):
                Path(scratch, "wheels").rename(home)
    wheels = sorted(home.glob("*.whl"))
    _require_pinned(wheels, lock)
    return wheels


def _require_pinned(wheels: Iterable[Path], lock: Path) -> None:
    # The cache may have changed since pip read it.
    pinned = lock.read_text()
    for wheel in wheels:
        if f"sha256:{digest(wheel)}" not in pinned:
            raise BadConfiguration(f"{wheel} is not what {lock.name} pins; remove {wheel.parent}")


def _download(lock: Path, python: str, into: Path) -> None:
    exactly = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--requirement", str(lock)]
    target = ["--platform", OLDEST_MAC, "--implementation", "cp", "--python-version", python]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, *exactly, *target, "--dest", str(into)],
        capture_output=True,
        text=True,
        timeout=_WITHIN_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        stderr = done.stderr.strip()[-1000:]
        raise BadConfiguration(f"pip could not fetch the agent's wheels: {stderr}")


def digest(wheel: Path) -> str:
    """Return the SHA-256 of a wheel."""
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def files_of(wheel: Path) -> dict[str, Source]:
    """Return the files of a wheel that belong into the archive."""
    with zipfile.ZipFile(wheel) as archive:
        return dict(_members(wheel, archive))


def _members(wheel: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, Source]]:
    for member in archive.infolist():
        name = PurePosixPath(member.filename)
        if name.is_absolute() or ".." in name.parts or member.file_size > _LARGEST_FILE:
            raise BadConfiguration(
                f"{wheel.name}: {member.filename} leads out of it, or is too large"
            )
        if not member.is_dir() and code.is_needed(member.filename):
            yield member.filename, archive.read(member)
