"""chown, mv and `ls -ld` where the machine has but one user for all of a Mac's: owners are kept in the Mac's state.

A server that runs as root needs none of these: there the kernel knows owners, and the machine's own programs show them.
"""

from __future__ import annotations

import posixpath
import stat
import time
from collections.abc import Mapping

from bramley.sim.macos.call import Call, Program, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import ordinary, reading, refusing


def chown(mac: Mac, call: Call) -> Said:
    """Note a file's owner."""
    if not call.is_root:
        return Said(1, err=f"chown: {call.argv[-1]}: Operation not permitted\n")
    return ordinary.chown(mac, call)


def mv(mac: Mac, call: Call) -> Said:
    """Give a file another name, and let its owner go with it."""
    paths = [word for word in call.argv[1:] if word not in {"-f", "--"}]
    if len(paths) != 2 or any(path.startswith("-") for path in paths):
        return refusing.not_modelled(call)
    old, new = (path.rstrip("/") for path in paths)
    if mac.files.is_folder(new) and (paths[1].endswith("/") or not _is_link(mac, new)):
        new = posixpath.join(new, posixpath.basename(old))
    if mac.files.find(old) is None:
        return Said(1, err=f"mv: {old}: No such file or directory\n")
    if not all(reading.may_replace(mac, call, path) for path in (old, new)):
        return Said(1, err=f"mv: rename {old} to {new}: Permission denied\n")
    try:
        mac.files.rename(old, new)
    except OSError as error:
        return Said(1, err=f"mv: rename {old} to {new}: {error.strerror}\n")
    return Said()


def ls(mac: Mac, call: Call) -> Said:
    """Describe each path on a line."""
    said, wrong = [], []
    for path in call.argv[2:]:
        found = mac.files.find(path)
        if found is None:
            wrong.append(f"ls: {path}: No such file or directory\n")
            continue
        user, _, group = mac.files.owner(path, follow=False).partition(":")
        when = time.strftime("%b %e %H:%M", time.localtime(found.st_mtime))
        to = f" -> {mac.files.target(path)}" if stat.S_ISLNK(found.st_mode) else ""
        said.append(
            f"{stat.filemode(found.st_mode)}  {found.st_nlink} {user}  {group}  {found.st_size} {when} {path}{to}\n"
        )
    return Said(1 if wrong else 0, "".join(said), "".join(wrong))


PROGRAMS: Mapping[str, Program] = {"chown": chown, "mv": mv, "ls": ls}


def _is_link(mac: Mac, path: str) -> bool:
    found = mac.files.find(path)
    return found is not None and stat.S_ISLNK(found.st_mode)
