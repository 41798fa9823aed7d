from __future__ import annotations

from pathlib import Path

import pytest

from tools import lengths


def measured(root: Path, text: str, name: str = "src/part.py") -> lengths.File:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return lengths.measure(path, root)


def function_of(lines: int, name: str = "work", head: str = "") -> str:
    return f"def {name}({head}):\n" + "    pass\n" * (lines - 1)


@pytest.mark.parametrize(("name", "limit"), [("work", 40), ("reconcile", 25)])
def test_a_function_at_its_limit_passes_and_one_line_more_does_not(
    tmp_path: Path, name: str, limit: int
) -> None:
    fits = measured(tmp_path, function_of(limit, name))
    breaks = measured(tmp_path, function_of(limit + 1, name))

    assert list(lengths.breaches(fits)) == []
    assert list(lengths.breaches(breaks)) == [
        f"src/part.py:1: {name} has {limit + 1} lines, the limit is {limit}"
    ]


def test_a_file_of_more_than_400_lines_is_named(tmp_path: Path) -> None:
    assert list(lengths.breaches(measured(tmp_path, "x = 1\n" * 400))) == []
    assert list(lengths.breaches(measured(tmp_path, "x = 1\n" * 401))) == [
        "src/part.py: 401 lines, the limit is 400"
    ]


def test_the_sixth_positional_parameter_is_one_too_many(tmp_path: Path) -> None:
    five = measured(tmp_path, "class A:\n    async def work(self, a, b, c, d, e, *, f): ...\n")
    six = measured(tmp_path, "def work(a, b, c, d, e, f): ...\n")

    assert list(lengths.breaches(five)) == []
    assert "takes 6 positional parameters" in next(lengths.breaches(six))


def test_meaningless_module_name_is_refused(tmp_path: Path) -> None:
    vague = measured(tmp_path, "", "src/bramley/kube/utils.py")
    allowed = measured(tmp_path, "", "src/bramley/runtime/manager.py")

    assert list(lengths.breaches(vague))
    assert list(lengths.breaches(allowed)) == []


def test_report_has_median_p90_and_longest(tmp_path: Path) -> None:
    functions = "".join(function_of(lines, f"work{lines}") for lines in range(2, 12))
    file = measured(tmp_path, functions)

    first, second, third = lengths.summary([file])

    assert "10 functions: length median 6.5 (goal 8), p90 10 (goal 30)" in first
    assert second.startswith("longest function 11 lines, work11")
    assert third == f"longest file {file.lines} lines, src/part.py"
