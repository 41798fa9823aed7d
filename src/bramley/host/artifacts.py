"""What is brought to Macs: files on the manager's disk, by their digest.

Nothing of a file stays in memory; whoever streams one reads it in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file to be brought to Macs, as it was when its digest was taken."""

    name: str
    version: str
    path: Path
    size: int
    sha256: str
