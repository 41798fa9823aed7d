"""The steps of a complete Mac, for tests of the whole bootstrap in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bramley.host import sequence
from bramley.host.step import Step
from tests import virtual_time
from tests.unit.host.steps import fixtures


def steps(folder: Path, **changes: Any) -> list[Step]:
    """Return the steps of a Mac with every part."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = fixtures.spec(folder, client_authority=fixtures.AUTHORITY.encode(), **changes)
    return sequence.steps(spec, clock=virtual_time.clock())
