"""Measure files and functions against the limits of the house style, and print how long the code really is.

Limits hold for src, tests, tools and bench; the figures are those of src. A function counts from its `def` to its last line.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "tools", "bench")

FILE_LINES = 400
FUNCTION_LINES = 40
RECONCILE_LINES = 25
POSITIONAL_PARAMETERS = 5
MEDIAN_GOAL = 8
P90_GOAL = 30
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
# The one manager: it runs the controllers of a process.
ALLOWED_VAGUE = {"src/bramley/runtime/manager.py"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Function:
    """One function with its place and size."""

    name: str
    place: str
    lines: int
    positional: int

    @property
    def limit(self) -> int:
        """Return how many lines this function may have."""
        return RECONCILE_LINES if self.name == "reconcile" else FUNCTION_LINES


@dataclass(frozen=True, slots=True)
class File:
    """One source file with its size and its functions."""

    path: str
    lines: int
    functions: tuple[Function, ...]


def main() -> int:
    """Print the statistics and every violation; fail if there is one."""
    files = [measure(path, ROOT) for path in sources(ROOT)]
    for line in summary([file for file in files if file.path.startswith("src/")]):
        print(line)
    breached = [breach for file in files for breach in breaches(file)]
    for breach in breached:
        print(breach)
    return 1 if breached else 0


def sources(root: Path) -> list[Path]:
    """Return every Python file that has limits."""
    return sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))


def measure(path: Path, root: Path) -> File:
    """Read one file and measure it."""
    text = path.read_text()
    place = path.relative_to(root).as_posix()
    functions = tuple(
        Function(
            name=node.name,
            place=f"{place}:{node.lineno}",
            lines=(node.end_lineno or node.lineno) - node.lineno + 1,
            positional=positional(node),
        )
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Definition)
    )
    return File(path=place, lines=len(text.splitlines()), functions=functions)


def positional(node: Definition) -> int:
    """Count the parameters that may be passed by position, without self and cls."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def breaches(file: File) -> Iterator[str]:
    """Yield every limit that the file or one of its functions exceeds."""
    if file.lines > FILE_LINES:
        yield f"{file.path}: {file.lines} lines, the limit is {FILE_LINES}"
    if Path(file.path).stem in VAGUE and file.path not in ALLOWED_VAGUE:
        yield f"{file.path}: the name is too generic; name the module after what it contains"
    for function in file.functions:
        if function.lines > function.limit:
            yield f"{function.place}: {function.name} has {function.lines} lines, the limit is {function.limit}"
        if function.positional > POSITIONAL_PARAMETERS:
            yield (
                f"{function.place}: {function.name} takes {function.positional} positional parameters, "
                f"the limit is {POSITIONAL_PARAMETERS}"
            )


def summary(files: Sequence[File]) -> Iterator[str]:
    """Return the lengths of functions and files beside the goals."""
    functions = [function for file in files for function in file.functions]
    lengths = sorted(function.lines for function in functions)
    # The smallest length that at least nine tenths of the functions stay within.
    p90 = lengths[-(-len(lengths) * 9 // 10) - 1]
    longest = max(functions, key=lambda function: function.lines)
    file = max(files, key=lambda file: file.lines)
    yield (
        f"{len(files)} files of {sum(file.lines for file in files)} lines, {len(functions)} functions: "
        f"length median {statistics.median(lengths):g} (goal {MEDIAN_GOAL}), p90 {p90} (goal {P90_GOAL})"
    )
    yield f"longest function {longest.lines} lines, {longest.name} in {longest.place}"
    yield f"longest file {file.lines} lines, {file.path}"


if __name__ == "__main__":
    sys.exit(main())
