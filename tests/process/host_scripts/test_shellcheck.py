"""Scripts that live on Macs are shell that shellcheck has nothing to say about."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bramley.host import scripts

FILES = sorted(Path(scripts.__file__).parent.glob("*.sh"))


def test_shellcheck_has_nothing_to_say() -> None:
    assert FILES
    said = subprocess.run(
        ["shellcheck", "--shell=sh", *map(str, FILES)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert (said.returncode, said.stdout) == (0, "")
