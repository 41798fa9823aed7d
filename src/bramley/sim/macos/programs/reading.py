"""Whether the user of a call may read or write what lies at a path; root may do everything."""

from __future__ import annotations

import posixpath

from bramley.sim.macos import users
from bramley.sim.macos.call import Call
from bramley.sim.macos.mac import Mac

_READ, _WRITE = 4, 2


def contents(mac: Mac, call: Call, path: str) -> bytes | None:
    """Return what a file holds, None if there is none; PermissionError if this user may not read it."""
    if mac.files.is_file(path) and not _may(mac, call, path, _READ):
        raise PermissionError(path)
    return mac.files.read(path)


def may_replace(mac: Mac, call: Call, path: str) -> bool:
    """Tell whether this user may put a file into the folder that this path names; a folder that is missing counts as its parent."""
    folder = posixpath.dirname(path) or "/"
    while folder != "/" and not mac.files.is_folder(folder):
        folder = posixpath.dirname(folder)
    return _may(mac, call, folder, _WRITE)


def _may(mac: Mac, call: Call, path: str, bit: int) -> bool:
    if call.is_root:
        return True
    owner, _, group = mac.files.owner(path).partition(":")
    mode = mac.files.mode(path)
    if owner == call.user:
        return bool(mode >> 6 & bit)
    if group in users.groups_of(mac.state, call.user):
        return bool(mode >> 3 & bit)
    return bool(mode & bit)
