"""What a simulated Mac has become, to compare two of them: files with their contents' digests, and its lasting state."""

from __future__ import annotations

import os
import stat as stats
from typing import TYPE_CHECKING, Any

from bramley.sim.macos.state import lasting

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


def take(mac: Mac) -> dict[str, Any]:
    """Return the Mac's files and its state, without times, process ids, counters and identities."""
    state = {key: value for key, value in lasting(dict(mac.state)).items() if key != "owners"}
    with mac.at_once():
        files = {path: _file(mac, path, seen) for path, seen in mac.files.facts()}
    return {"files": files, "state": state}


def _file(mac: Mac, path: str, seen: os.stat_result) -> list[str]:
    told = [f"{stats.S_IMODE(seen.st_mode):04o}", mac.files.owner_of(path, seen)]
    if stats.S_ISLNK(seen.st_mode):
        return ["link", *told[1:], mac.files.target(path)]
    if stats.S_ISREG(seen.st_mode):
        return ["file", *told, mac.files.digest(path)]
    return ["folder" if stats.S_ISDIR(seen.st_mode) else "other", *told]
