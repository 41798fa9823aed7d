"""What both systems answer alike, and what only real processes make us ask: whether one is still the one it was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from bramley.agent.host import Host, Space


class System(Host, Protocol):
    """A real machine."""

    def began(self, pid: int) -> str | None:
        """Return when the process began, as a supervisor writes it down; None if there is none, or it only waits to be reaped."""
        ...

    def is_same(self, pid: int, began: str) -> bool:
        """Tell whether the process of this number is still the one that began then, and no later one; False if it has ended."""
        ...


def space(path: Path) -> Space:
    """Return the room on the volume of a path, or of the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    told = os.statvfs(path)
    return Space(total=told.f_blocks * told.f_frsize, free=told.f_bavail * told.f_frsize)


def descendants(root: int, parents: Mapping[int, int]) -> list[int]:
    """Return a process and all below it, by who is whose parent."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found.extend(each for each in children.get(pid, ()) if each not in found)
    return found
