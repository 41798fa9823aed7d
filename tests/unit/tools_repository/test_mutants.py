from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml

from tools import mutants
from tools.scratch import HUNG, INVALID, KILLED, SKIPPED, SURVIVED, UNFINISHED, Scratch

# Each of these starts a pytest process, which is too slow for the fast tiers.
starts_pytest = pytest.mark.tier("mutants")

TESTS = """
import time
import pytest
from bramley.sums import add

def test_adds(): assert add(2, 2) == 4
def test_knows_nothing(): assert add
def test_is_not_for_here(): pytest.skip("no")
@pytest.fixture
def broken(): raise ValueError(add)
def test_with_a_broken_fixture(broken): pass
def test_waits(): time.sleep(60)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for package in ("src/bramley", "tools", "tests/unit"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").touch()
    (root / "src/bramley/sums.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    (root / "tests/unit/test_sums.py").write_text(TESTS)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return root


def a_mutant(
    test: str = "test_adds", *, snippet: str = "a + b", replacement: str = "a - b"
) -> mutants.Mutant:
    return mutants.Mutant(
        at="src/bramley/sums.py::add",
        snippet=snippet,
        replacement=replacement,
        test=f"tests/unit/test_sums.py::{test}",
        why="Addition must add.",
    )


def verdict(tree: Path, mutant: mutants.Mutant) -> str:
    [result] = mutants.run([mutant], root=tree)
    return result.verdict.outcome


@starts_pytest
@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("test_adds", KILLED),
        ("test_knows_nothing", SURVIVED),
        ("test_is_not_for_here", SKIPPED),
        ("test_with_a_broken_fixture", INVALID),
        ("test_that_does_not_exist", INVALID),
    ],
)
def test_only_a_failed_test_kills_a_mutant(tree: Path, test: str, outcome: str) -> None:
    assert verdict(tree, a_mutant(test)) == outcome


@starts_pytest
def test_a_mutant_that_cannot_be_imported_is_invalid(tree: Path) -> None:
    assert (
        verdict(tree, a_mutant(snippet="def add", replacement="import nowhere\ndef add")) == INVALID
    )


@starts_pytest
def test_a_test_over_its_deadline_is_hung(tree: Path, tmp_path: Path) -> None:
    scratch = Scratch.copy(tree, tmp_path / "scratch")

    assert scratch.test(["tests/unit/test_sums.py::test_waits"], timeout=3).outcome == HUNG


@starts_pytest
def test_the_checkout_is_unchanged_and_the_copy_is_restored(tree: Path, tmp_path: Path) -> None:
    before = (tree / "src/bramley/sums.py").read_text()
    scratch = Scratch.copy(tree, tmp_path / "scratch")
    mutant = a_mutant()

    first = mutants.judge(mutant, scratch)
    unmodified = scratch.test([mutant.test], timeout=60)

    assert (first.outcome, unmodified.outcome) == (KILLED, SURVIVED)
    assert (tree / "src/bramley/sums.py").read_text() == before


@starts_pytest
def test_a_mutant_beyond_the_budget_is_unfinished(tree: Path) -> None:
    [result] = mutants.run([a_mutant()], root=tree, budget=0)

    assert result.verdict.outcome == UNFINISHED


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"snippet": "a"}, "times, not once"),
        ({"snippet": "a * b"}, "contains the snippet 0 times"),
        ({"snippet": "def add"}, "is not valid Python"),
        ({"at": "src/bramley/gone.py"}, "does not exist"),
        ({"at": "src/bramley/sums.py::subtract"}, "is not defined"),
        ({"test": "tests/unit/test_gone.py::test_a"}, "is not an existing file::test"),
        ({"hint": "none"}, "unknown field `hint`"),
    ],
)
def test_an_unusable_entry_is_explained(tree: Path, entry: dict[str, str], problem: str) -> None:
    usable = msgspec.to_builtins(a_mutant(replacement="a -"))
    (tree / "bad.yaml").write_text(yaml.safe_dump([usable | entry]))

    with pytest.raises(mutants.InvalidMutants, match=problem):
        mutants.load(tree, tree)


def test_only_the_named_function_is_changed(tree: Path) -> None:
    text = "def plus(a, b):\n    return a + b\n\n\ndef add(a, b):\n    return a + b\n"

    assert a_mutant().apply(text) == text[:-6] + "a - b\n"


def test_mutants_of_changed_files_come_first_and_the_seed_orders_the_rest() -> None:
    known = [
        mutants.Mutant(at=f"src/{number}.py", snippet="a", replacement="b", test="t::t", why="w")
        for number in range(20)
    ]

    order = mutants.in_order(known, changed={"src/7.py"}, seed="x")

    assert order[0].file == "src/7.py"
    assert set(order) == set(known)
    assert order == mutants.in_order(known, changed={"src/7.py"}, seed="x")
    assert order != mutants.in_order(known, changed={"src/7.py"}, seed="y")


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def test_changed_files_are_those_since_the_parent_and_those_not_yet_committed(tree: Path) -> None:
    assert mutants.changed_files(tree) == set()
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "first")
    assert mutants.changed_files(tree) == set()

    (tree / "tools/__init__.py").write_text("second = 2\n")
    git(tree, "commit", "-q", "-a", "-m", "second")
    (tree / "src/bramley/sums.py").write_text("third = 3\n")

    assert mutants.changed_files(tree) == {"tools/__init__.py", "src/bramley/sums.py"}
