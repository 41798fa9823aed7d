"""shellcheck reports nothing for the scripts that are installed on Macs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bramley.host import scripts

FILES = sorted(Path(scripts.__file__).parent.glob("*.sh"))


def test_installed_scripts_are_clean() -> None:
    assert FILES
    checked = subprocess.run(
        ["shellcheck", "--shell=sh", *map(str, FILES)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert (checked.returncode, checked.stdout) == (0, "")
