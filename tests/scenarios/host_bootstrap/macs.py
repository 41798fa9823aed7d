"""Bare Macs for stories of a whole bootstrap, in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bramley.base import virtual_time
from bramley.host import sequence
from bramley.host.step import Step
from tests.unit.host.steps import wanted


def steps(folder: Path, **changes: Any) -> list[Step]:
    """Return the steps of a Mac with everything."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = wanted.spec(folder, client_authority=wanted.AUTHORITY.encode(), **changes)
    return sequence.steps(spec, clock=virtual_time.clock())
