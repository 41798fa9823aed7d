"""Apply known regressions to the code and check that a test fails: mutants as data in `tests/mutants/*.yaml`.

A mutant names a function (`at: path::Class.method`, or only a path for shell files and constants), a snippet that occurs in
it exactly once, the replacement, and the test that must fail then. Mutants are applied to a copy of the tree, never to the
checkout. `python -m tools.mutants` runs all of them after checking that their tests pass on unmodified code; the tier
`mutants` runs those of changed files and a seeded sample of the others within a minute.
"""

from __future__ import annotations

import argparse
import ast
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import msgspec

from tools.scratch import HUNG, KILLED, SKIPPED, SURVIVED, UNFINISHED, Scratch, Verdict

ROOT = Path(__file__).parent.parent
WORKERS = 2
TIMEOUT = 180.0
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One regression, and the test that must fail on it."""

    at: str
    snippet: str
    replacement: str
    test: str
    why: str

    @property
    def file(self) -> str:
        """Return the path of the file that this mutant changes."""
        return self.at.partition("::")[0]

    def apply(self, text: str) -> str:
        """Return the file's text with the replacement in place of the snippet."""
        start, end = self._span(text)
        return text[:start] + text[start:end].replace(self.snippet, self.replacement) + text[end:]

    def problems(self, root: Path) -> Iterator[str]:
        """Yield what makes this entry unusable in the tree at `root`."""
        path = root / self.file
        if not path.is_file():
            yield f"{self.file} does not exist"
            return
        text = path.read_text()
        try:
            start, end = self._span(text)
        except LookupError:
            yield f"{self.at} is not defined"
            return
        if (count := text[start:end].count(self.snippet)) != 1:
            yield f"{self.at} contains the snippet {count} times, not once: {self.snippet!r}"
        elif path.suffix == ".py" and not _compiles(self.apply(text)):
            yield f"{self.at} is not valid Python with the replacement {self.replacement!r}"
        if self.snippet == self.replacement or not self.why.strip():
            yield f"{self.at}: a mutant needs a replacement that differs and a reason"
        if not (root / self.test.partition("::")[0]).is_file() or "::" not in self.test:
            yield f"{self.test} is not an existing file::test"

    def _span(self, text: str) -> tuple[int, int]:
        """Return where the named function begins and ends in the text; the whole text without a name."""
        name = self.at.partition("::")[2]
        if not name:
            return 0, len(text)
        tree = ast.parse(text)
        first, *inner = name.split(".")
        node = _definition(tree, first)
        for part in inner:
            node = _definition(node, part)
        lines = text.splitlines(keepends=True)
        return sum(map(len, lines[: node.lineno - 1])), sum(map(len, lines[: node.end_lineno]))


def _definition(parent: ast.AST, name: str) -> Definition:
    for node in ast.walk(parent):
        if isinstance(node, Definition) and node.name == name:
            return node
    raise LookupError(name)


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class InvalidMutants(ValueError):
    """Entries of the mutant files are unusable; the message lists every problem."""


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on one mutant."""

    mutant: Mutant
    verdict: Verdict


def load(folder: Path, root: Path = ROOT) -> list[Mutant]:
    """Read every mutant, or raise with the list of problems."""
    mutants: list[Mutant] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            entries = msgspec.yaml.decode(path.read_bytes(), type=list[Mutant])
        except msgspec.DecodeError as error:
            problems.append(f"{path.name}: {error}")
            continue
        problems += [f"{path.name}: {text}" for entry in entries for text in entry.problems(root)]
        mutants += entries
    if problems:
        raise InvalidMutants("\n".join(problems))
    return mutants


def run(
    mutants: Sequence[Mutant], *, root: Path = ROOT, budget: float | None = None
) -> Iterator[Result]:
    """Run mutants in copies of the tree, two at a time; those beyond the budget in seconds are unfinished."""
    deadline = None if budget is None else time.monotonic() + budget
    with tempfile.TemporaryDirectory(prefix="bramley-mutants-") as folder:
        free: SimpleQueue[Scratch] = SimpleQueue()
        for number in range(WORKERS):
            free.put(Scratch.copy(root, Path(folder) / str(number)))

        def run_one(mutant: Mutant) -> Result:
            scratch = free.get()
            try:
                return Result(mutant, judge(mutant, scratch, deadline=deadline))
            finally:
                free.put(scratch)

        with ThreadPoolExecutor(max_workers=WORKERS) as pool:
            yield from pool.map(run_one, mutants)


def judge(mutant: Mutant, scratch: Scratch, *, deadline: float | None = None) -> Verdict:
    """Apply the mutant to the copy, run its test there and undo the change."""
    remaining = TIMEOUT if deadline is None else deadline - time.monotonic()
    if remaining < 1:
        return Verdict(UNFINISHED, "the time budget is used up")
    with scratch.changed(mutant.file, mutant.apply):
        verdict = scratch.test([mutant.test], timeout=min(remaining, TIMEOUT))
    if verdict.outcome == HUNG and deadline is not None:
        return Verdict(UNFINISHED, verdict.detail)
    return verdict


def baseline(mutants: Iterable[Mutant], *, root: Path = ROOT) -> Verdict:
    """Run the tests that mutants name on unmodified code; each of them must pass."""
    tests = sorted({mutant.test for mutant in mutants})
    with tempfile.TemporaryDirectory(prefix="bramley-mutants-") as folder:
        return Scratch.copy(root, Path(folder) / "unmodified").test(tests, timeout=TIMEOUT * 5)


def changed_files(root: Path = ROOT) -> set[str]:
    """Return the files that differ from the parent commit, uncommitted changes included; empty without git."""
    changed: set[str] = set()
    for command in (("diff", "--name-only", "HEAD~1"), ("diff", "--name-only", "HEAD")):
        done = subprocess.run(
            ["git", *command], cwd=root, capture_output=True, text=True, check=False
        )
        changed |= set(done.stdout.splitlines()) if done.returncode == 0 else set()
    return changed


def in_order(mutants: Sequence[Mutant], *, changed: set[str], seed: str) -> list[Mutant]:
    """Return all mutants, those of changed files first, the others shuffled by the seed."""
    shuffled = random.Random(seed).sample(list(mutants), len(mutants))
    return sorted(shuffled, key=lambda mutant: mutant.file not in changed)


def report(results: Sequence[Result]) -> str:
    """Return a text with every mutant that was not killed, then the count of each outcome."""
    lines = [
        f"{result.verdict.outcome:<10} {result.mutant.at}: {result.mutant.why}\n"
        f"           {result.mutant.snippet.strip()!r} → {result.mutant.replacement.strip()!r}\n"
        f"           {result.mutant.test}: {result.verdict.detail}"
        for result in results
        if result.verdict.outcome not in {KILLED, UNFINISHED}
    ]
    counts = Counter(result.verdict.outcome for result in results)
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    return "\n".join([*lines, f"{len(results)} mutants: {summary or 'none'}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every mutant whose file or test contains one of the given words; all without words."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=main.__doc__)
    parser.add_argument("words", nargs="*", help="parts of a file's or test's path")
    words = parser.parse_args(arguments).words
    entries = load(ROOT / "tests/mutants")
    mutants = [
        entry for entry in entries if not words or any(w in entry.at + entry.test for w in words)
    ]
    unmodified = baseline(mutants)
    if unmodified.outcome not in {SURVIVED, SKIPPED}:
        print(f"The tests do not pass on unmodified code: {unmodified.detail}")
        return 1
    results: list[Result] = []
    for result in run(mutants):
        results.append(result)
        print(f"{result.verdict.outcome:<10} {result.mutant.at}: {result.mutant.why}", flush=True)
    print(report(results))
    return 0 if all(result.verdict.outcome == KILLED for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
