"""The lock files pin every package by hash, name no host, and cover what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.meta.documents import ROOT, name_of

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def pinned(path: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==((?:.*\\\n)*.*)", path.read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): rest for name, rest in found}


@pytest.mark.parametrize("path", LOCKS, ids=name_of)
def test_a_lock_names_no_host_and_no_path(path: Path) -> None:
    text = path.read_text()

    assert "://" not in text
    assert not re.search(r"--(?:index-url|extra-index-url|find-links|trusted-host)", text)
    assert not re.search(r"(?<!\w)/\w+/", text)


@pytest.mark.parametrize("path", LOCKS, ids=name_of)
def test_every_package_in_a_lock_has_a_hash(path: Path) -> None:
    packages = pinned(path)

    assert packages
    assert [name for name, rest in packages.items() if "--hash=sha256:" not in rest] == []


def test_the_locks_cover_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    required = [
        *project["project"]["dependencies"],
        *(one for group in groups.values() for one in group),
    ]

    names = {re.split(r"[<>=!~;\[ ]", one)[0].lower() for one in required}

    assert names - {name for path in LOCKS for name in pinned(path)} == set()


def test_the_locked_versions_are_those_that_pyproject_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"].values()
    required = [*project["project"]["dependencies"], *(one for group in groups for one in group)]
    versions = {
        name.lower(): version
        for path in LOCKS
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE)
    }

    stale = [
        one
        for one in map(Requirement, required)
        if not one.specifier.contains(versions[one.name.lower()])
    ]

    assert stale == []


def test_every_runtime_dependency_gives_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)

    assert block
    assert [line for line in block[1].splitlines() if "  # " not in line] == []
