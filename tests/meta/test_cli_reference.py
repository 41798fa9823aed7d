"""The page about the command line is what the programs print about themselves."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import pytest

from bramley.cli import main
from tests.programs import run_program
from tools import cli_reference

ROOT = Path(__file__).parents[2]


@functools.cache
def page() -> str:
    return cli_reference.page()


def test_page_is_current() -> None:
    hint = "run: python -m tools.cli_reference"

    assert page() == cli_reference.PAGE.read_text(), hint


@pytest.mark.parametrize("columns", ["40", "200"])
def test_help_does_not_depend_on_the_terminal(columns: str) -> None:
    code = "import sys; from bramley.cli.main import run; sys.exit(run(['up', '--help']))"
    done = run_program(
        [sys.executable, "-c", code], env={**os.environ, "COLUMNS": columns}, timeout=60, check=True
    )

    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    assert printed in cli_reference.PAGE.read_text()


def test_every_command_has_an_example_in_its_help() -> None:
    for command in main.command_line().registered_commands:
        assert f"  bramley {command.name}" in page()
