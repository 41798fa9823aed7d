"""Scripts that are installed on Macs, as files for shellcheck; names between @ are replaced by constants of ours."""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parent
_NAME = re.compile(r"@([a-z_]+)@")


def text(name: str, **values: str | int) -> bytes:
    """Return a script with these values; all of its names must be given."""
    template = (_HERE / f"{name}.sh").read_text()
    return _NAME.sub(lambda match: str(values[match[1]]), template).encode()
