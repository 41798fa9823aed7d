"""Modules are compiled for the series of Python that compiles them, and for no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.app.agent_bundle import bytecode
from bramley.base.errors import BadConfiguration


def test_another_series_is_refused_with_the_command_that_works(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"run the same command with python3\.99"):
        bytecode.add(tmp_path, "3.99")


def test_a_module_that_does_not_compile_is_left_to_those_who_load_it(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def :\n")
    (tmp_path / "whole.py").write_text("one = 1\n")

    bytecode.add(tmp_path, bytecode.SERIES)

    (compiled,) = tmp_path.rglob("*.pyc")
    assert compiled.name.startswith("whole.")
