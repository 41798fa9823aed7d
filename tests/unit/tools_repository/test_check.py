from __future__ import annotations

import sys

import pytest

from tools import check


def test_a_failed_check_shows_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    script = "import sys; print('line 3 is wrong'); sys.exit(1)"

    passed = check.show(check.run("lint", [sys.executable, "-c", script]))

    shown = capsys.readouterr().out
    assert not passed
    assert "lint     FAILED" in shown
    assert "    line 3 is wrong" in shown


def test_passed_check_prints_only_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("lint", "lengths"):
        assert check.show(check.run(name, [sys.executable, "-c", "print('median 5')"]))

    assert capsys.readouterr().out.count("median 5") == 1
