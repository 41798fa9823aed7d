"""Wheels come from the lock alone: what lies in the cache is looked at again, and so is what lies in a wheel."""

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


def test_wheels_that_were_fetched_before_are_taken_from_the_cache(tmp_path: Path) -> None:
    made = wheel(tmp_path / "made.whl", **{"apple.py": ""})
    lock = lock_of(tmp_path, hashlib.sha256(made.read_bytes()).hexdigest())
    home = wheels.folder("3.11", lock=lock, cache=tmp_path)
    home.mkdir()
    kept = made.rename(home / "apple-1-py3-none-any.whl")

    assert wheels.fetched("3.11", lock=lock, cache=tmp_path) == [kept]


def test_a_wheel_in_the_cache_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    lock = lock_of(tmp_path, "0" * 64)
    home = wheels.folder("3.11", lock=lock, cache=tmp_path)
    wheel(home / "apple-1-py3-none-any.whl", **{"apple.py": "changed"})

    with pytest.raises(BadConfiguration, match=r"is not what agent\.txt pins"):
        wheels.fetched("3.11", lock=lock, cache=tmp_path)


def test_another_lock_or_series_has_another_place_in_the_cache(tmp_path: Path) -> None:
    one = wheels.folder("3.11", lock=lock_of(tmp_path, "0" * 64), cache=tmp_path)
    other = wheels.folder("3.12", lock=lock_of(tmp_path, "0" * 64), cache=tmp_path)
    newer = wheels.folder("3.11", lock=lock_of(tmp_path, "1" * 64), cache=tmp_path)

    assert len({one, other, newer}) == 3


def test_what_an_agent_needs_is_taken_out_of_a_wheel(tmp_path: Path) -> None:
    files = {"apple/__init__.py": "a", "apple/seed.pyx": "b", "apple-1.dist-info/RECORD": "c"}

    assert wheels.files_of(wheel(tmp_path / "apple.whl", **files)) == {"apple/__init__.py": b"a"}


@pytest.mark.parametrize("name", ["../apple.py", "/etc/apple.py", "apple/../../pear.py"])
def test_a_wheel_whose_names_lead_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadConfiguration, match="leads out of it"):
        wheels.files_of(wheel(tmp_path / "apple.whl", **{name: ""}))
