"""Every file of mutants can be used as it is, and every test it names exists."""

from __future__ import annotations

import ast

from tests.meta.documents import ROOT
from tools import mutants


def test_every_mutant_fits_its_file() -> None:
    assert mutants.load(ROOT / "tests/mutants")


def test_every_test_that_a_mutant_names_exists() -> None:
    missing = []
    for mutant in mutants.load(ROOT / "tests/mutants"):
        path, *names = mutant.test.split("[")[0].split("::")
        tree: list[ast.stmt] = ast.parse((ROOT / path).read_text()).body
        for name in names:
            found = [node for node in tree if getattr(node, "name", "") == name]
            if not found:
                missing.append(mutant.test)
                break
            tree = getattr(found[0], "body", [])

    assert missing == []
