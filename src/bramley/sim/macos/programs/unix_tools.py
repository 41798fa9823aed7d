"""Programs of every Unix, as far as steps call them; behind SSH the machine's own run instead."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bramley.sim.macos import launchd, loginwindow, users
from bramley.sim.macos.call import Call, Exit, Result, may_replace, not_modelled, read_file

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


_USAGE = 2
# The kernel truncates the names of processes.
_MAX_NAME = 15
_FLAGS = set("xzopfC")
# The exit code of cmp for a file that it cannot read.
_TROUBLE = 2


def true(mac: Mac, call: Call) -> Result:
    """Succeed."""
    del mac, call
    return Result()


def false(mac: Mac, call: Call) -> Result:
    """Fail."""
    del mac, call
    return Result(1)


def whoami(mac: Mac, call: Call) -> Result:
    """Print the calling user."""
    del mac
    return Result(out=f"{call.user}\n")


def _split(call: Call) -> tuple[set[str], list[str]]:
    """Return the letters of the options, and the other arguments."""
    letters = {letter for word in call.argv[1:] if word.startswith("-") for letter in word[1:]}
    return letters, [word for word in call.argv[1:] if not word.startswith("-")]


def id(mac: Mac, call: Call) -> Result:
    """Print a user's uid, name or groups; by default the caller's."""
    options, names = _split(call)
    name = names[0] if names else call.user
    uid = users.uid_of(mac.state, name)
    if uid is None:
        return Result(1, err=f"id: {name}: no such user\n")
    groups = users.groups_of(mac.state, name)
    if "u" in options:
        return Result(out=f"{name if 'n' in options else uid}\n")
    if "G" in options or "g" in options:
        chosen = groups if "G" in options else groups[:1]
        printed = chosen if "n" in options else [str(users.GROUPS[group]) for group in chosen]
        return Result(out=f"{' '.join(printed)}\n")
    listed = ",".join(f"{users.GROUPS[group]}({group})" for group in groups)
    return Result(out=f"uid={uid}({name}) gid={listed.partition(',')[0]} groups={listed}\n")


def cat(mac: Mac, call: Call) -> Result:
    """Print files, or stdin if none is named."""
    out = "" if call.argv[1:] else call.stdin.decode("utf-8", "replace")
    for path in call.argv[1:]:
        try:
            out += _read(mac, call, path).decode("utf-8", "replace")
        except Exit as exited:
            return Result(1, out, exited.result.err)
    return Result(out=out)


def _read(mac: Mac, call: Call, path: str) -> bytes:
    try:
        content = read_file(mac, call, path)
    except PermissionError:
        raise Exit(Result(1, err=f"{call.argv[0]}: {path}: Permission denied\n")) from None
    if content is None:
        raise Exit(Result(1, err=f"{call.argv[0]}: {path}: No such file or directory\n"))
    return content


def tail(mac: Mac, call: Call) -> Result:
    """Print the last bytes of one file; only -c is modelled."""
    if len(call.argv) != 4 or call.argv[1] != "-c" or not call.argv[2].isdigit():
        return not_modelled(call)
    path, count = call.argv[3], int(call.argv[2])
    content = _read(mac, call, path)
    return Result(out=content[-count:].decode("utf-8", "replace") if count else "")


def cmp(mac: Mac, call: Call) -> Result:
    """Compare two files, or one with stdin as -; only -s is modelled."""
    paths = [word for word in call.argv[1:] if word != "-s"]
    if "-s" not in call.argv or len(paths) != 2:
        return not_modelled(call)
    try:
        first, second = (call.stdin if path == "-" else _read(mac, call, path) for path in paths)
    except Exit:
        return Result(_TROUBLE)
    return Result(0 if first == second else 1)


def ls(mac: Mac, call: Call) -> Result:
    """List the names of one folder, hidden ones with -a."""
    options, paths = _split(call)
    if options - {"1", "a", "A"} or len(paths) != 1:
        return not_modelled(call)
    if not mac.files.exists(paths[0]):
        return Result(1, err=f"ls: {paths[0]}: No such file or directory\n")
    if not mac.files.is_folder(paths[0]):
        return Result(out=f"{paths[0]}\n")
    names = [name for name in mac.files.names(paths[0]) if options & {"a", "A"} or name[0] != "."]
    return Result(out="".join(f"{name}\n" for name in names))


def chown(mac: Mac, call: Call) -> Result:
    """Change the owner of files, with -R of whole folders; root only."""
    return _change(mac, call, lambda path, owner: mac.files.chown(path, owner, follow=False))


def chmod(mac: Mac, call: Call) -> Result:
    """Set the permissions of files, with -R of whole folders, as an octal number."""
    return _change(mac, call, lambda path, mode: mac.files.at(path).chmod(int(mode, 8)))


def _change(mac: Mac, call: Call, act: Callable[[str, str], None]) -> Result:
    name, *words = call.argv
    options = [word for word in words if word.startswith("-")]
    value, *paths = [word for word in words if not word.startswith("-")] or [""]
    if set(options) - {"-R", "-h"} or not paths:
        return not_modelled(call)
    for path in paths:
        if mac.files.find(path) is None:
            return Result(1, err=f"{name}: {path}: No such file or directory\n")
        if not call.is_root and (name == "chown" or not _owns(mac, call, path)):
            return Result(1, err=f"{name}: {path}: Operation not permitted\n")
        try:
            for each in (path, *(mac.files.walk(path) if "-R" in options else ())):
                act(each, value)
        except (LookupError, ValueError) as error:
            return Result(1, err=f"{name}: {error.args[0]}\n")
    return Result()


def _owns(mac: Mac, call: Call, path: str) -> bool:
    return mac.files.owner(path).partition(":")[0] == call.user


def install(mac: Mac, call: Call) -> Result:
    """Copy one file with a mode, as -m MODE SOURCE TARGET; the copy belongs to the caller."""
    match call.argv[1:]:
        case ["-m", mode, source, target] if mode.isdigit() and not mac.files.is_folder(target):
            content = _read(mac, call, source)
        case _:
            return not_modelled(call)
    if not may_replace(mac, call, target):
        return Result(71, err=f"install: {target}: Permission denied\n")
    owner = f"{call.user}:{users.groups_of(mac.state, call.user)[0]}"
    mac.files.write(target, content, mode=int(mode, 8), owner=owner)
    return Result()


def killall(mac: Mac, call: Call) -> Result:
    """Send a signal to the processes of a name; every signal ends them."""
    _, names = _split(call)
    if len(names) != 1:
        return Result(1, err="usage: killall [-signal] name\n")
    with mac.change() as state:
        targets = [
            (target, job)
            for target, job in state["launchd"]["jobs"].items()
            if "pid" in job and _name(job) == names[0]
        ]
        if not targets:
            return Result(1, err="No matching processes were found\n")
        if not call.is_root:
            return Result(1, err="No matching processes belonging to you were found\n")
        for target, _ in targets:
            launchd.hang_up(mac, state, target)
            if target == loginwindow.TARGET:
                loginwindow.log_out(mac, state)
    return Result()


def pgrep(mac: Mac, call: Call) -> Result:
    """Print the ids of processes whose name, or with -f whose whole command line, matches; 1 if there is none.

    Only root sees more than the beginning of the name of another user's process.
    """
    options, words = _split(call)
    if len(words) != 1 or options - {"f", "x", "q", "l"}:
        return Result(_USAGE, err="usage: pgrep [-flqx] pattern\n")
    try:
        pattern = re.compile(words[0])
    except re.error:
        return Result(_USAGE, err="pgrep: Cannot compile regular expression\n")
    matches = pattern.fullmatch if "x" in options else pattern.search
    pids = []
    for pid, command, user in processes(mac.state):
        name = command.partition(" ")[0].rpartition("/")[2]
        text = command if "f" in options else name
        if matches(text if call.is_root or user == call.user else name[:_MAX_NAME]):
            pids.append(pid)
    out = "" if "q" in options else "".join(f"{pid}\n" for pid in pids)
    return Result(0 if pids else 1, out=out)


def processes(state: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """Yield pid, command line and user of the jobs, and of `processes` in the state."""
    for job in state["launchd"]["jobs"].values():
        if "pid" in job:
            yield job["pid"], " ".join(job["arguments"]), job["user"] or "root"
    for process in state["processes"]:
        yield process["pid"], process["command"], process.get("user", state["settings"]["user"])


def _name(job: Mapping[str, Any]) -> str:
    return str(job["program"] or job["arguments"][0]).rpartition("/")[2]


def tar(mac: Mac, call: Call) -> Result:
    """Unpack an archive, `-x -z -f FILE -C FOLDER`."""
    arguments = _arguments(list(call.argv[1:]))
    if arguments is None:
        return not_modelled(call)
    archive, folder = arguments
    if not mac.files.is_file(archive):
        return Result(1, err=f"tar: Error opening archive: Failed to open '{archive}'\n")
    if not mac.files.is_folder(folder):
        return Result(1, err=f"tar: could not chdir to '{folder}'\n")
    try:
        with tarfile.open(mac.files.at(archive), "r:*") as opened:
            for member in opened:
                _unpack(mac, call, opened, member, folder)
    except (tarfile.TarError, EOFError) as error:
        return Result(1, err=f"tar: Error opening archive: {error}\n")
    except OSError as error:
        return Result(
            1, err=f"tar: {error.strerror}\ntar: Error exit delayed from previous errors.\n"
        )
    return Result()


def _arguments(words: list[str]) -> tuple[str, str] | None:
    """Return the archive and the folder; None for a call that is not modelled."""
    values = {"f": "", "C": "/"}
    seen: set[str] = set()
    while words:
        word = words.pop(0)
        letters = word.removeprefix("-")
        # Only the first bundle of letters may lack the dash.
        if (seen and not word.startswith("-")) or set(letters) - _FLAGS:
            return None
        seen |= set(letters)
        for letter in letters:
            if letter in values:
                values[letter] = words.pop(0) if words else ""
    return (values["f"], values["C"]) if "x" in seen and values["f"] else None


def _unpack(
    mac: Mac, call: Call, archive: tarfile.TarFile, member: tarfile.TarInfo, folder: str
) -> None:
    if ".." in member.name.split("/"):
        raise tarfile.TarError("Path contains '..'")
    path = f"{folder}/{member.name.lstrip('/')}"
    owner = f"{call.user}:{users.groups_of(mac.state, call.user)[0]}"
    if member.isdir():
        mac.files.make_folder(path, mode=member.mode or 0o755, owner=owner)
        return
    parent = path.rpartition("/")[0]
    if not mac.files.is_folder(parent):
        mac.files.make_folder(parent, owner=owner)
    if member.issym():
        mac.files.link(path, member.linkname)
    else:
        content = archive.extractfile(member)
        mac.files.write(path, content.read() if content else b"", mode=member.mode, owner=owner)
