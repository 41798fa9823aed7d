"""Every mutant applies to the code, and every test it names exists."""

from __future__ import annotations

import ast
import functools

from tests.meta.documents import ROOT
from tools import mutants
from tools.mutants import Mutant


@functools.cache
def known() -> list[Mutant]:
    return mutants.load(ROOT / "tests/mutants")


def test_every_mutant_applies() -> None:
    assert known()


@functools.cache
def defined(path: str) -> set[str]:
    """Return the names that a test file defines: functions, classes, methods, and what is assigned at its top."""
    tree = ast.parse((ROOT / path).read_text())
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, definitions)}
    targets = [
        target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
    ]
    return names | {target.id for target in targets if isinstance(target, ast.Name)}


def test_every_test_that_a_mutant_names_exists() -> None:
    named = {mutant.test.split("[")[0].partition("::") for mutant in known()}

    missing = [
        f"{path}::{name}" for path, _, name in named if name.split("::")[0] not in defined(path)
    ]

    assert missing == []
