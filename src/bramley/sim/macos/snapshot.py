"""What a simulated Mac has become, to compare two of them: files with their contents' digests, and its lasting state."""

from __future__ import annotations

import stat as stats
from typing import TYPE_CHECKING, Any

from bramley.sim.macos.state import lasting

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


def take(mac: Mac) -> dict[str, Any]:
    """Return the Mac's files and its state, without times, process ids, counters and identities."""
    state = {key: value for key, value in lasting(dict(mac.state)).items() if key != "owners"}
    return {"files": {path: _file(mac, path) for path in mac.files.walk()}, "state": state}


def _file(mac: Mac, path: str) -> list[str]:
    found = mac.files.find(path)
    assert found is not None  # noqa: S101 - nobody changes a Mac while it is looked at
    told = [f"{stats.S_IMODE(found.st_mode):04o}", mac.files.owner(path, follow=False)]
    if stats.S_ISLNK(found.st_mode):
        return ["link", *told[1:], mac.files.target(path)]
    if stats.S_ISREG(found.st_mode):
        return ["file", *told, mac.files.digest(path)]
    return ["folder" if stats.S_ISDIR(found.st_mode) else "other", *told]
