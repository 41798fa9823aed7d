"""The command line of `tart run`: a guest without a screen, its shared folders, and a disk that need not survive the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# A guest's disk boots once, so what a crash of the host would lose of it is lost anyway; cached reads are twice as fast.
THROW_AWAY_DISK = "sync=none,caching=cached"


@dataclass(frozen=True, slots=True)
class Share:
    """A folder of the host that the guest sees under a name."""

    name: str
    path: Path
    is_read_only: bool = False

    def spelt(self) -> str:
        """Return it as `--dir` reads it, which knows `:ro` and refuses `:rw`."""
        return f"{self.name}:{self.path}{':ro' if self.is_read_only else ''}"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a VM is to be run."""

    shares: Sequence[Share] = ()
    root_disk: str = THROW_AWAY_DISK


def argv(binary: str, vm: str, options: RunOptions) -> tuple[str, ...]:
    """Return the command line."""
    shares = [part for share in options.shares for part in ("--dir", share.spelt())]
    return (binary, "run", vm, "--no-graphics", "--root-disk-opts", options.root_disk, *shares)


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what every tart of ours has in its environment: its home, and the word not to delete images by itself."""
    return {"TART_HOME": str(home), "TART_NO_AUTO_PRUNE": "1", **(more or {})}
