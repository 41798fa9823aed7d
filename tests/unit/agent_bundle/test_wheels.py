"""Wheels of the lock file: the cache and the names in a wheel are verified at each use."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from bramley.base.errors import BadConfiguration
from tools.agent_bundle import wheels


def wheel(path: Path, **files: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def lock_of(folder: Path, *digests: str) -> Path:
    path = folder / "agent.txt"
    path.write_text("".join(f"apple==1 --hash=sha256:{digest}\n" for digest in digests))
    return path


def test_fetched_wheels_are_reused_from_the_cache(tmp_path: Path) -> None:
    built = wheel(tmp_path / "made.whl", **{"apple.py": ""})
    lock = lock_of(tmp_path, hashlib.sha256(built.read_bytes()).hexdigest())
    folder = wheels.folder("3.11", lock=lock, cache=tmp_path)
    folder.mkdir()
    cached = built.rename(folder / "apple-1-py3-none-any.whl")

    assert wheels.fetched("3.11", lock=lock, cache=tmp_path) == [cached]


def test_cached_wheel_with_another_hash_is_refused(tmp_path: Path) -> None:
    lock = lock_of(tmp_path, "0" * 64)
    folder = wheels.folder("3.11", lock=lock, cache=tmp_path)
    wheel(folder / "apple-1-py3-none-any.whl", **{"apple.py": "changed"})

    with pytest.raises(BadConfiguration, match=r"is not what agent\.txt pins"):
        wheels.fetched("3.11", lock=lock, cache=tmp_path)


def test_cache_folder_depends_on_lock_and_series(tmp_path: Path) -> None:
    one = wheels.folder("3.11", lock=lock_of(tmp_path, "0" * 64), cache=tmp_path)
    other = wheels.folder("3.12", lock=lock_of(tmp_path, "0" * 64), cache=tmp_path)
    newer = wheels.folder("3.11", lock=lock_of(tmp_path, "1" * 64), cache=tmp_path)

    assert len({one, other, newer}) == 3


def test_only_needed_files_are_read_from_a_wheel(tmp_path: Path) -> None:
    files = {"apple/__init__.py": "a", "apple/seed.pyx": "b", "apple-1.dist-info/RECORD": "c"}

    assert wheels.files_of(wheel(tmp_path / "apple.whl", **files)) == {"apple/__init__.py": b"a"}


@pytest.mark.parametrize("name", ["../apple.py", "/etc/apple.py", "apple/../../pear.py"])
def test_wheel_with_names_outside_it_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadConfiguration, match="leads out of it"):
        wheels.files_of(wheel(tmp_path / "apple.whl", **{name: ""}))
