"""Break the code in known ways and see that a test notices: mutants as data in `tests/mutants/*.yaml`.

Each mutant names a file, a text that occurs in it once, the text to put there, and the test that must fail then. It is
applied to a scratch copy of the tree, never to the checkout. `python -m tools.mutants` runs all and checks first that the
tests pass unbroken; the tier `mutants` runs those of changed files and a seeded sample of the rest within a minute.
"""

from __future__ import annotations

import argparse
import random
import re
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

from tools.scratch import DEAD, HUNG, SKIPPED, SURVIVED, UNFINISHED, Scratch, Verdict

ROOT = Path(__file__).parent.parent
WORKERS = 2
TIMEOUT = 180.0
_MARGIN = re.compile(r"^(?:@|def |async def |class )", re.MULTILINE)


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to break one file, and the test that must notice."""

    file: str
    old: str
    new: str
    test: str
    why: str

    def broken(self, text: str) -> str:
        """Return the file's text with this mutant in it."""
        return text.replace(self.old, self.new)

    def problems(self, root: Path) -> Iterator[str]:
        """Say what makes this entry unusable in the tree at `root`."""
        path = root / self.file
        if not path.is_file():
            yield f"{self.file} does not exist"
        elif (count := path.read_text().count(self.old)) != 1:
            yield f"{self.file} holds the old text {count} times, not once: {self.old!r}"
        elif path.suffix == ".py" and not self._stays_python(path.read_text()):
            yield f"{self.file} is no Python any more with {self.new!r}"
        if self.old == self.new or not self.why.strip():
            yield f"{self.file}: a mutant changes something and says why it matters"
        if not (root / self.test.partition("::")[0]).is_file() or "::" not in self.test:
            yield f"{self.test} is no file::test"

    def _stays_python(self, text: str) -> bool:
        # What begins at the margin around it is tried first: to compile whole files takes ten times as long.
        at = text.index(self.old)
        begins = [0, *(match.start() for match in _MARGIN.finditer(text)), len(text)]
        start = max(begin for begin in begins if begin <= at)
        end = min(begin for begin in begins if begin >= at + len(self.old))
        return compiles(self.broken(text[start:end])) or compiles(self.broken(text))


class InvalidMutants(ValueError):
    """A file of mutants cannot be used as it is; the message lists every problem."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one mutant."""

    mutant: Mutant
    verdict: Verdict


def compiles(text: str) -> bool:
    """Tell whether the text is Python."""
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def load(folder: Path, root: Path = ROOT) -> list[Mutant]:
    """Read every mutant, or raise with the list of what is wrong."""
    mutants: list[Mutant] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            found = msgspec.yaml.decode(path.read_bytes(), type=list[Mutant])
        except msgspec.DecodeError as error:
            problems.append(f"{path.name}: {error}")
            continue
        problems += [f"{path.name}: {text}" for one in found for text in one.problems(root)]
        mutants += found
    if problems:
        raise InvalidMutants("\n".join(problems))
    return mutants


def run(
    mutants: Sequence[Mutant], *, root: Path = ROOT, budget: float | None = None
) -> Iterator[Result]:
    """Run mutants two at a time in scratch copies; those that no longer fit into the budget are unfinished."""
    ends = None if budget is None else time.monotonic() + budget
    with tempfile.TemporaryDirectory(prefix="bramley-mutants-") as folder:
        free: SimpleQueue[Scratch] = SimpleQueue()
        for number in range(WORKERS):
            free.put(Scratch.of(root, Path(folder) / str(number)))

        def one(mutant: Mutant) -> Result:
            scratch = free.get()
            try:
                return Result(mutant, judge(mutant, scratch, ends=ends))
            finally:
                free.put(scratch)

        with ThreadPoolExecutor(max_workers=WORKERS) as pool:
            yield from pool.map(one, mutants)


def judge(mutant: Mutant, scratch: Scratch, *, ends: float | None = None) -> Verdict:
    """Break the scratch copy, run the test there, heal the copy, and say whether the test noticed."""
    left = TIMEOUT if ends is None else ends - time.monotonic()
    if left < 1:
        return Verdict(UNFINISHED, "no time was left for it")
    with scratch.changed(mutant.file, mutant.broken):
        verdict = scratch.test([mutant.test], timeout=min(left, TIMEOUT))
    return (
        Verdict(UNFINISHED, verdict.told) if verdict.word == HUNG and ends is not None else verdict
    )


def baseline(mutants: Iterable[Mutant], *, root: Path = ROOT) -> Verdict:
    """Run the tests that mutants name on unbroken code; each of them has to pass there."""
    tests = sorted({mutant.test for mutant in mutants})
    with tempfile.TemporaryDirectory(prefix="bramley-mutants-") as folder:
        return Scratch.of(root, Path(folder) / "unbroken").test(tests, timeout=TIMEOUT * 5)


def changed_files(root: Path = ROOT) -> set[str]:
    """Return what differs from the parent commit, uncommitted work included; nothing where git cannot tell."""
    changed: set[str] = set()
    for command in (("diff", "--name-only", "HEAD~1"), ("diff", "--name-only", "HEAD")):
        told = subprocess.run(
            ["git", *command], cwd=root, capture_output=True, text=True, check=False
        )
        changed |= set(told.stdout.splitlines()) if told.returncode == 0 else set()
    return changed


def chosen(mutants: Sequence[Mutant], *, changed: set[str], seed: str) -> list[Mutant]:
    """Return all mutants in the order to try them: those of changed files first, then the rest as the seed shuffles it."""
    shuffled = random.Random(seed).sample(list(mutants), len(mutants))
    return sorted(shuffled, key=lambda mutant: mutant.file not in changed)


def report(results: Sequence[Result]) -> str:
    """Lay out every mutant that did not die, then the count of each outcome."""
    lines = [
        f"{result.verdict.word:<10} {result.mutant.file}: {result.mutant.why}\n"
        f"           {result.mutant.old.strip()!r} → {result.mutant.new.strip()!r}\n"
        f"           {result.mutant.test}: {result.verdict.told}"
        for result in results
        if result.verdict.word not in {DEAD, UNFINISHED}
    ]
    counts = Counter(result.verdict.word for result in results)
    told = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return "\n".join([*lines, f"{len(results)} mutants: {told or 'none'}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every mutant whose file or test contains one of the given words; all without words."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=main.__doc__)
    parser.add_argument("words", nargs="*", help="parts of a file's or test's path")
    words = parser.parse_args(arguments).words
    known = load(ROOT / "tests/mutants")
    mutants = [one for one in known if not words or any(w in one.file + one.test for w in words)]
    unbroken = baseline(mutants)
    if unbroken.word not in {SURVIVED, SKIPPED}:
        print(f"The tests do not pass on unbroken code: {unbroken.told}")
        return 1
    results: list[Result] = []
    for result in run(mutants):
        results.append(result)
        print(f"{result.verdict.word:<10} {result.mutant.file}: {result.mutant.why}", flush=True)
    print(report(results))
    return 0 if all(result.verdict.word == DEAD for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
