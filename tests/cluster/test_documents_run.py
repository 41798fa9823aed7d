"""The commands in the README and the tutorial work, and print what these say."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster import walkthrough

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "docs/tutorial/first-steps.md")
Walks = Mapping[str, "Future[int]"]


@pytest.fixture(scope="module")
def walks(kubectl: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walks]:
    """Run all walks at the same time, because each mostly waits."""

    def walk(document: str) -> int:
        folder = tmp_path_factory.mktemp("walk")
        environment = {
            "PATH": f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}",
            # A separate home folder and a free port: the tests touch no data of their user.
            "HOME": str(folder),
            "BRAMLEY_LISTEN": "127.0.0.1:0",
        }
        return walkthrough.run(ROOT / document, walkthrough.Walk(ROOT, environment, folder))

    with ThreadPoolExecutor(len(DOCUMENTS)) as threads:
        yield {each: threads.submit(walk, each) for each in DOCUMENTS}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_of_a_document_print_what_it_shows(document: str, walks: Walks) -> None:
    assert walks[document].result() >= 4
