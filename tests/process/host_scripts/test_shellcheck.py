"""shellcheck reports nothing for the scripts that are installed on Macs."""

from __future__ import annotations

from pathlib import Path

from bramley.host import scripts
from tests.programs import run_program

FILES = sorted(Path(scripts.__file__).parent.glob("*.sh"))


def test_installed_scripts_are_clean() -> None:
    assert FILES
    checked = run_program(["shellcheck", "--shell=sh", *map(str, FILES)])

    assert (checked.returncode, checked.stdout) == (0, "")
