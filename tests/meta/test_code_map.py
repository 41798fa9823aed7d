"""ARCHITECTURE.md is a map: it names every package and no other, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.meta.documents import ROOT, SOURCES, markdown, name_of, prose

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def links(path: Path) -> list[str]:
    found = [link.partition("#")[0] for link in _LINK.findall(prose(path))]
    return [link for link in found if link and "://" not in link]


def test_the_code_map_names_every_package_and_no_other() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = {path.parent.name for path in SOURCES.glob("*/__init__.py")}

    named = re.findall(r"^### `(\w+)/`", text, re.MULTILINE)

    assert sorted(named) == sorted(packages)


def test_the_code_map_is_in_the_order_of_the_layers() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    pyproject = (ROOT / "pyproject.toml").read_text()
    drawn = re.search(r"^layers = \[(.*?)\]", pyproject, re.MULTILINE | re.DOTALL)
    assert drawn

    named = re.findall(r"^### `(\w+)/`", text, re.MULTILINE)

    # Siblings of one layer share a line there.
    assert named == re.findall(r"\w+", drawn[1])


def test_architecture_document_has_at_most_250_lines() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 250


@pytest.mark.parametrize("path", markdown(), ids=name_of)
def test_links_between_documents_resolve(path: Path) -> None:
    missing = [target for target in links(path) if not (path.parent / target).exists()]

    assert missing == []


def test_every_document_is_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in seen or path.suffix != ".md":
            continue
        seen.add(path)
        waiting += [(path.parent / link).resolve() for link in links(path)]

    assert sorted(name_of(path) for path in set(markdown()) - seen) == []
