"""The commands in the README and the tutorial work, and print what these say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster import walkthrough

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("document", ["README.md", "docs/tutorial/first-steps.md"])
def test_a_newcomer_sees_what_the_document_shows(
    document: str, tmp_path: Path, kubectl: Path
) -> None:
    environment = {
        "PATH": f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}",
        # Of its own: nothing of the person who runs the tests is touched, and no port collides.
        "HOME": str(tmp_path),
        "BRAMLEY_LISTEN": "127.0.0.1:0",
    }

    taken = walkthrough.run(ROOT / document, walkthrough.Walk(ROOT, environment, tmp_path))

    assert taken >= 4
