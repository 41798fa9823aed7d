"""Programs that every Unix has, as far as steps call them; only the face that works in process runs these."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bramley.sim.macos import users
from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.programs import reading, refusing

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

# What cmp says of a file that it cannot read.
_TROUBLE = 2


def true(mac: Mac, call: Call) -> Said:
    """Succeed."""
    del mac, call
    return Said()


def false(mac: Mac, call: Call) -> Said:
    """Fail."""
    del mac, call
    return Said(1)


def whoami(mac: Mac, call: Call) -> Said:
    """Tell who calls."""
    del mac
    return Said(out=f"{call.user}\n")


def id(mac: Mac, call: Call) -> Said:
    """Tell a user's number, name or groups: the caller's, if none is named."""
    options = {letter for word in call.argv[1:] if word.startswith("-") for letter in word[1:]}
    names = [word for word in call.argv[1:] if not word.startswith("-")]
    name = names[0] if names else call.user
    uid = users.uid_of(mac.state, name)
    if uid is None:
        return Said(1, err=f"id: {name}: no such user\n")
    groups = users.groups_of(mac.state, name)
    if "u" in options:
        return Said(out=f"{name if 'n' in options else uid}\n")
    if "G" in options or "g" in options:
        chosen = groups if "G" in options else groups[:1]
        told = chosen if "n" in options else [str(users.GROUPS[group]) for group in chosen]
        return Said(out=f"{' '.join(told)}\n")
    listed = ",".join(f"{users.GROUPS[group]}({group})" for group in groups)
    return Said(out=f"uid={uid}({name}) gid={listed.partition(',')[0]} groups={listed}\n")


def cat(mac: Mac, call: Call) -> Said:
    """Print files, or stdin if none is named."""
    out = "" if call.argv[1:] else call.stdin.decode("utf-8", "replace")
    for path in call.argv[1:]:
        try:
            content = reading.contents(mac, call, path)
        except PermissionError:
            return Said(1, out, f"cat: {path}: Permission denied\n")
        if content is None:
            return Said(1, out, f"cat: {path}: No such file or directory\n")
        out += content.decode("utf-8", "replace")
    return Said(out=out)


def tail(mac: Mac, call: Call) -> Said:
    """Print the last bytes of one file, as -c counts them."""
    if len(call.argv) != 4 or call.argv[1] != "-c" or not call.argv[2].isdigit():
        return refusing.not_modelled(call)
    path, most = call.argv[3], int(call.argv[2])
    try:
        content = reading.contents(mac, call, path)
    except PermissionError:
        return Said(1, err=f"tail: {path}: Permission denied\n")
    if content is None:
        return Said(1, err=f"tail: {path}: No such file or directory\n")
    return Said(out=content[-most:].decode("utf-8", "replace") if most else "")


def cmp(mac: Mac, call: Call) -> Said:
    """Compare a file with another one or, as -, with stdin, byte by byte and without a word."""
    words = [word for word in call.argv[1:] if word != "-s"]
    if "-s" not in call.argv or len(words) != 2:
        return refusing.not_modelled(call)
    try:
        one, other = (
            call.stdin if path == "-" else reading.contents(mac, call, path) for path in words
        )
    except PermissionError:
        return Said(_TROUBLE)
    if one is None or other is None:
        return Said(_TROUBLE)
    return Said(0 if one == other else 1)


def ls(mac: Mac, call: Call) -> Said:
    """List the names of one folder, hidden ones with -a."""
    options = {letter for word in call.argv[1:] if word.startswith("-") for letter in word[1:]}
    paths = [word for word in call.argv[1:] if not word.startswith("-")]
    if options - {"1", "a", "A"} or len(paths) != 1:
        return refusing.not_modelled(call)
    if not mac.files.exists(paths[0]):
        return Said(1, err=f"ls: {paths[0]}: No such file or directory\n")
    if not mac.files.is_folder(paths[0]):
        return Said(out=f"{paths[0]}\n")
    names = [name for name in mac.files.names(paths[0]) if options & {"a", "A"} or name[0] != "."]
    return Said(out="".join(f"{name}\n" for name in names))


def chown(mac: Mac, call: Call) -> Said:
    """Give files away, with -R whole folders; root only."""

    def give(path: str, owner: str) -> None:
        mac.files.own(path, owner, follow=False)

    return _change(mac, call, give)


def chmod(mac: Mac, call: Call) -> Said:
    """Set the permissions of files, with -R of whole folders, by their number."""

    def set_mode(path: str, mode: str) -> None:
        mac.files.at(path).chmod(int(mode, 8))

    return _change(mac, call, set_mode)


def _change(mac: Mac, call: Call, act: Callable[[str, str], None]) -> Said:
    name, *words = call.argv
    options = [word for word in words if word.startswith("-")]
    value, *paths = [word for word in words if not word.startswith("-")] or [""]
    if set(options) - {"-R", "-h"} or not paths:
        return refusing.not_modelled(call)
    for path in paths:
        if mac.files.find(path) is None:
            return Said(1, err=f"{name}: {path}: No such file or directory\n")
        if not call.is_root and (name == "chown" or not _owns(mac, call, path)):
            return Said(1, err=f"{name}: {path}: Operation not permitted\n")
        try:
            for each in (path, *(mac.files.walk(path) if "-R" in options else ())):
                act(each, value)
        except (LookupError, ValueError) as error:
            return Said(1, err=f"{name}: {error.args[0]}\n")
    return Said()


def _owns(mac: Mac, call: Call, path: str) -> bool:
    return mac.files.owner(path).partition(":")[0] == call.user
