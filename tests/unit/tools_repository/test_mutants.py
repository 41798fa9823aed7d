from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import mutants
from tools.scratch import DEAD, HUNG, INVALID, SKIPPED, SURVIVED, UNFINISHED, Scratch

# Each of these starts Python and pytest anew, too slow for the fast tiers.
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


def a_mutant(test: str = "test_adds", *, old: str = "a + b", new: str = "a - b") -> mutants.Mutant:
    return mutants.Mutant(
        file="src/bramley/sums.py",
        old=old,
        new=new,
        test=f"tests/unit/test_sums.py::{test}",
        why="Sums are sums.",
    )


def verdict(tree: Path, mutant: mutants.Mutant) -> str:
    [result] = mutants.run([mutant], root=tree)
    return result.verdict.word


@starts_pytest
@pytest.mark.parametrize(
    ("test", "word"),
    [
        ("test_adds", DEAD),
        ("test_knows_nothing", SURVIVED),
        ("test_is_not_for_here", SKIPPED),
        ("test_with_a_broken_fixture", INVALID),
        ("test_that_nobody_wrote", INVALID),
    ],
)
def test_only_a_failed_test_is_a_death(tree: Path, test: str, word: str) -> None:
    assert verdict(tree, a_mutant(test)) == word


@starts_pytest
def test_a_mutant_that_cannot_be_imported_is_invalid(tree: Path) -> None:
    assert verdict(tree, a_mutant(old="def add", new="import nowhere\ndef add")) == INVALID


@starts_pytest
def test_a_test_without_a_verdict_is_hung(tree: Path, tmp_path: Path) -> None:
    scratch = Scratch.of(tree, tmp_path / "scratch")

    assert scratch.test(["tests/unit/test_sums.py::test_waits"], timeout=3).word == HUNG


@starts_pytest
def test_the_checkout_stays_as_it_was_and_the_copy_heals(tree: Path, tmp_path: Path) -> None:
    before = (tree / "src/bramley/sums.py").read_text()
    scratch = Scratch.of(tree, tmp_path / "scratch")
    mutant = a_mutant()

    first = mutants.judge(mutant, scratch)
    unbroken = scratch.test([mutant.test], timeout=60)

    assert (first.word, unbroken.word) == (DEAD, SURVIVED)
    assert (tree / "src/bramley/sums.py").read_text() == before


@starts_pytest
def test_what_no_longer_fits_into_the_budget_is_unfinished(tree: Path) -> None:
    [result] = mutants.run([a_mutant()], root=tree, budget=0)

    assert result.verdict.word == UNFINISHED


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("old: 'a'", "times, not once"),
        ("old: 'a * b'", "holds the old text 0 times"),
        ("old: 'def add'", "is no Python any more"),
        ("old: 'a + b'\n  file: src/bramley/gone.py", "does not exist"),
        ("old: 'a + b'\n  test: tests/unit/test_gone.py::test_a", "is no file::test"),
        ("old: 'a + b'\n  hint: none", "unknown field `hint`"),
    ],
)
def test_an_unusable_entry_is_explained(tree: Path, entry: str, problem: str) -> None:
    rest = {"file": "src/bramley/sums.py", "test": "tests/unit/test_sums.py::test_adds"}
    lines = [f"  {key}: {value}" for key, value in rest.items() if f"{key}:" not in entry]
    text = "\n".join([f"- {entry}", *lines, "  new: 'a -'", "  why: Because."])
    (tree / "bad.yaml").write_text(text)

    with pytest.raises(mutants.InvalidMutants, match=problem):
        mutants.load(tree, tree)


def test_mutants_of_changed_files_come_first_and_the_seed_orders_the_rest() -> None:
    known = [
        mutants.Mutant(file=f"src/{number}.py", old="a", new="b", test="t::t", why="w")
        for number in range(20)
    ]

    order = mutants.chosen(known, changed={"src/7.py"}, seed="x")

    assert order[0].file == "src/7.py"
    assert set(order) == set(known)
    assert order == mutants.chosen(known, changed={"src/7.py"}, seed="x")
    assert order != mutants.chosen(known, changed={"src/7.py"}, seed="y")


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
