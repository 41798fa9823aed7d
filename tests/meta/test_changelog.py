"""The changelog knows the version that is packaged, and keeps its sections in order."""

from __future__ import annotations

import re
import tomllib

import bramley
from tests.meta.documents import ROOT

ORDER = ["Security", "Removed", "Deprecated", "Added", "Changed", "Fixed"]


def test_the_changelog_has_the_packages_version_on_top() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    versions = re.findall(
        r"^## \[?(\d\S*?)\]?(?: |$)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )

    assert versions[0] == version


def test_package_has_the_version_of_pyproject() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert bramley.__version__ == version


def test_sections_are_in_order() -> None:
    for release in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]:
        sections = re.findall(r"^### (\w+)", release, re.MULTILINE)

        assert sections == [name for name in ORDER if name in sections]
