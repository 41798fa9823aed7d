"""Scripts that live on Macs, as files that shellcheck reads; what stands between @ is filled in with values of ours alone."""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parent
_NAME = re.compile(r"@([a-z_]+)@")


def text(name: str, **values: str | int) -> bytes:
    """Return a script with these values in it; all of its names must be given."""
    found = (_HERE / f"{name}.sh").read_text()
    return _NAME.sub(lambda match: str(values[match[1]]), found).encode()
