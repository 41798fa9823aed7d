"""`bramley sim tart`: the same program on a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.programs import run_program

CODE = "import sys; from bramley.cli.main import run; sys.exit(run(sys.argv[1:]))"


def bramley(*words: str) -> subprocess.CompletedProcess[str]:
    return run_program([sys.executable, "-c", CODE, *words], env={"PATH": "/usr/bin:/bin"})


def test_interactive_calls_run_the_same_program(tmp_path: Path) -> None:
    made = bramley("sim", "tart", "--home", str(tmp_path), "create", "one", "--linux")
    listed = bramley("sim", "tart", "--home", str(tmp_path), "list", "--quiet")
    missing = bramley("sim", "tart", "--home", str(tmp_path), "get", "two")

    assert (made.returncode, listed.stdout) == (0, "one\n")
    assert (missing.returncode, missing.stderr) == (2, 'the specified VM "two" does not exist\n')


def test_help_of_a_command_is_the_program_s_own() -> None:
    assert "Run a simulated tart" in bramley("sim", "tart", "--help").stdout
    assert "USAGE: tart clone" in bramley("sim", "tart", "clone", "--help").stdout
