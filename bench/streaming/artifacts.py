"""The artifacts that are sent and the SSH key of all receivers: files in the benchmark's folder, generated for each run.

The sizes are those of a fleet whose manager ran out of memory: an agent, tart, tailscale and node_exporter.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncssh

MEGABYTE = 1_000_000
SIZES: Mapping[str, int] = {
    "tart-kubelet": 47 * MEGABYTE,
    "tart": 22 * MEGABYTE,
    "tailscale": 14 * MEGABYTE,
    "node_exporter": 13 * MEGABYTE,
}
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Staged:
    """The files of one run."""

    folder: Path

    @property
    def files(self) -> list[Path]:
        """Return the artifacts, the largest first."""
        return [self.folder / name for name in SIZES]

    @property
    def size(self) -> int:
        """Return the total size that one host receives."""
        return sum(path.stat().st_size for path in self.files)

    @property
    def key(self) -> Path:
        """Return the private key; the public one is beside it."""
        return self.folder / "key"

    @property
    def authorized(self) -> Path:
        """Return the public key."""
        return self.folder / "key.pub"


def stage(folder: Path, *, shrunk: int = 1) -> Staged:
    """Write artifacts, `shrunk` times smaller than real ones, and a key."""
    staged, rng = Staged(folder), random.Random(0)
    for path, size in zip(staged.files, SIZES.values(), strict=True):
        _fill(path, size // shrunk, rng)
    key = asyncssh.generate_private_key("ssh-ed25519")
    staged.key.touch(mode=0o600)
    staged.key.write_bytes(key.export_private_key("openssh"))
    staged.authorized.write_bytes(key.export_public_key("openssh"))
    return staged


def _fill(path: Path, size: int, rng: random.Random) -> None:
    with path.open("wb") as file:
        for begin in range(0, size, _BLOCK):
            file.write(rng.randbytes(min(_BLOCK, size - begin)))
