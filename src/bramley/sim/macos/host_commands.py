"""The commands and probes of host steps on the model of a Mac: the same effects and messages as rendered shell behind SSH.

Everything but a program run as the user goes through sudo's rules; what only root may read is read if sudo requires no password, and
otherwise as the user. A file is written under a temporary name and renamed. Waiting, restarts and faults are done by the connection.
"""

from __future__ import annotations

import hashlib
import os
import stat as stats
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from bramley.api.names import host
from bramley.base.secret import Secret
from bramley.host import commands
from bramley.host.facts import FILE, FOLDER, LINK, OTHER, Facts, FileStat, ProbeResult, RunResult
from bramley.host.rendering.script import content_of
from bramley.sim.macos.call import Call, Result, read_file
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import sudo, sudoers

# The exit code of scripts that changed nothing, as in rendered shell.
UNDONE = 125
# The prefix of a file until it is renamed; the digits stand for the token of a call.
_TEMPORARY_PREFIX = ".bramley-new.0123456789abcdef."


class Failed(Exception):
    """A command that ended with a code that is not accepted; the message may contain its output."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class PasswordRefused(Failed):
    """sudo did not accept the password."""


def run(mac: Mac, user: str, command: commands.Run) -> None:
    """Run a program, as root through sudo; an exit code of sudo itself is never accepted."""
    # Input at a prompt ends with a newline.
    stdin = content_of(command.stdin) + (b"\n" if command.prompt else b"")
    if command.as_root:
        become_root(mac, user, command.sudo_password)
        user = "root"
    environment = {}
    if command.stdin_variable:
        environment = {command.stdin_variable: stdin.decode().rstrip("\n")}
        stdin = b""
    call = Call(
        command.argv, user, stdin, on_terminal=bool(command.prompt), environment=environment
    )
    _accept(mac.run(call), command.accepted_codes)


def _accept(result: Result, accepted_codes: tuple[int, ...] = (0,)) -> None:
    if result.code not in accepted_codes:
        raise Failed(result.code, (result.err or result.out).strip())


def become_root(mac: Mac, user: str, password: Secret | None = None) -> None:
    """Fail with sudo's message if it refuses; the password is sent once, and only if sudo requires one."""
    needs_password = password is not None and not sudoers.rules_for(mac, user).without_password
    options = ("-S", "-p", "") if password else ("-n",)
    stdin = content_of(password) + b"\n" if password and needs_password else b""
    decision = sudo.decide(mac, Call(("sudo", *options, "--", "true"), user, stdin))
    if isinstance(decision, Result):
        error = PasswordRefused if "incorrect password" in decision.err else Failed
        raise error(decision.code, decision.err.strip())


def write(mac: Mac, user: str, command: commands.Write) -> None:
    """Write a file, check it, and rename it to its path."""
    become_root(mac, user, command.sudo_password)
    with _temporary_file(mac, command.path) as new:
        mac.files.write(new, content_of(command.content), mode=command.mode)
        mac.files.chown(new, command.owner, follow=False)
        if command.check:
            argv = tuple(new if word == "{}" else word for word in command.check)
            result = mac.run(Call(argv, "root"))
            if result.code:
                message = f"{result.err or result.out}{argv[0]} does not accept the new file"
                raise Failed(UNDONE, message)
        mac.files.rename(new, command.path)


async def stream(
    mac: Mac, user: str, command: commands.Stream, blocks: AsyncIterator[bytes]
) -> None:
    """Receive an artifact, verify its size and digest, and rename it to its path."""
    become_root(mac, user)
    artifact = command.artifact
    with _temporary_file(mac, command.path) as new:
        mac.files.require_room(artifact.size)
        size, digest = await _receive(mac, new, blocks)
        if size != artifact.size:
            raise Failed(UNDONE, "not all bytes have arrived")
        if digest != artifact.sha256:
            raise Failed(UNDONE, "the received bytes differ from those that were sent")
        mac.files.at(new).chmod(command.mode)
        mac.files.chown(new, command.owner, follow=False)
        mac.files.rename(new, command.path)


async def _receive(mac: Mac, path: str, blocks: AsyncIterator[bytes]) -> tuple[int, str]:
    hasher, size = hashlib.sha256(), 0
    with mac.files.at(path).open("wb") as new:
        async for block in blocks:
            new.write(block)
            hasher.update(block)
            size += len(block)
    return size, hasher.hexdigest()


@contextmanager
def _temporary_file(mac: Mac, path: str) -> Iterator[str]:
    """Yield a temporary name beside a path; only a cut leaves a file under it, which the next call removes."""
    folder, _, name = path.rpartition("/")
    if not mac.files.is_folder(folder or "/"):
        raise Failed(UNDONE, f"the folder {folder or '/'} does not exist")
    _refuse_folder(mac, path, follow=False)
    new = f"{folder}/{_TEMPORARY_PREFIX}{name}"
    mac.files.remove(new)
    try:
        with _file_errors():
            yield new
    except Failed:
        mac.files.remove(new)
        raise


def _refuse_folder(mac: Mac, path: str, *, follow: bool) -> None:
    local_path = mac.files.at(path, follow=follow)
    if local_path.is_dir() and (follow or not local_path.is_symlink()):
        raise Failed(UNDONE, f"{path} is a folder")


@contextmanager
def _file_errors() -> Iterator[None]:
    """Turn errors of files and owners into a failed command."""
    try:
        yield
    except OSError as error:
        raise Failed(UNDONE, error.strerror or type(error).__name__) from error
    except LookupError as error:
        raise Failed(UNDONE, f"chown: {error.args[0]}") from error


def folder(mac: Mac, user: str, command: commands.Folder) -> None:
    """Make a folder, or change its owner and mode."""
    become_root(mac, user)
    with _file_errors():
        mac.files.make_folder(command.path, mode=command.mode, owner=command.owner)


def link(mac: Mac, user: str, command: commands.Link) -> None:
    """Make a link, or replace it."""
    become_root(mac, user)
    with _temporary_file(mac, command.path) as new:
        mac.files.link(new, command.target)
        mac.files.rename(new, command.path)


def rename(mac: Mac, user: str, command: commands.Rename) -> None:
    """Rename; a folder is not replaced, nor moved into."""
    become_root(mac, user)
    _refuse_folder(mac, command.to, follow=True)
    with _file_errors():
        mac.files.rename(command.path, command.to)


def remove(mac: Mac, user: str, command: commands.Remove) -> None:
    """Remove a file, link or folder."""
    become_root(mac, user)
    with _file_errors():
        mac.files.remove(command.path)


def seal(mac: Mac, user: str, command: commands.Seal) -> None:
    """Store the digest of a folder in its seal file."""
    become_root(mac, user)
    if not mac.files.is_folder(command.path):
        raise Failed(UNDONE, f"the folder {command.path} does not exist")
    with _file_errors():
        mac.files.write(f"{command.path}/{host.SEAL}", b"")
        message = f"{folder_digest(mac.files.at(command.path))}\n"
        mac.files.write(f"{command.path}/{host.SEAL}", message.encode())


def facts(mac: Mac, user: str, probes: Collection[commands.Probe]) -> Facts:
    """Run all probes."""
    may_sudo = not isinstance(sudo.decide(mac, Call(("sudo", "-n", "true"), user)), Result)
    return Facts({probe: _run_one_probe(mac, user, probe, as_root=may_sudo) for probe in probes})


def _run_one_probe(mac: Mac, user: str, probe: commands.Probe, *, as_root: bool) -> ProbeResult:
    match probe:
        case commands.RunProbe():
            return run_probe(mac, user, probe)
        case commands.ReadFile():
            return _read_file_probe(mac, "root" if as_root and probe.as_root else user, probe)
        case commands.Stat():
            return _stat_probe(mac, "root" if as_root else user, probe)


def run_probe(mac: Mac, user: str, probe: commands.RunProbe) -> RunResult:
    """Run a program and return its output and exit code."""
    argv = ("sudo", "-n", "--", *probe.argv) if probe.as_root else probe.argv
    result = mac.run(Call(argv, user))
    return RunResult(result.code, (result.out + result.err).encode()[: probe.max_bytes])


def _read_file_probe(mac: Mac, user: str, probe: commands.ReadFile) -> bytes | None:
    try:
        content = read_file(mac, Call(("head",), user), probe.path)
    except PermissionError:
        return None
    if content is None:
        return None
    return content[: probe.max_bytes] if content.startswith(probe.prefix) else b""


def _stat_probe(mac: Mac, user: str, probe: commands.Stat) -> FileStat | None:
    stat = mac.files.find(probe.path)
    if stat is None:
        return None
    owner = mac.files.owner(probe.path, follow=False)
    if stats.S_ISLNK(stat.st_mode):
        return FileStat(LINK, owner=owner, target=mac.files.target(probe.path))
    mode = stats.S_IMODE(stat.st_mode)
    if stats.S_ISDIR(stat.st_mode):
        digest = folder_digest(mac.files.at(probe.path)) if probe.digest else ""
        return FileStat(FOLDER, mode=mode, owner=owner, digest=digest)
    if not stats.S_ISREG(stat.st_mode):
        return FileStat(OTHER, mode=mode, owner=owner)
    digest = _digest(mac, user, probe.path) if probe.digest else ""
    return FileStat(FILE, mode=mode, owner=owner, size=stat.st_size, digest=digest)


def _digest(mac: Mac, user: str, path: str) -> str:
    try:
        read_file(mac, Call(("shasum",), user), path)
    except PermissionError:
        return ""
    return mac.files.digest(path)


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 of a folder's content: the listing of rendered shell, byte for byte."""
    seal = folder / host.SEAL
    sealed_at = seal.lstat().st_mtime_ns if seal.exists() else None
    lines = sorted(os.fsencode(line) + b"\n" for line in _lines(str(folder), sealed_at))
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _lines(folder: str, sealed_at: int | None) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        yield from _folder_lines(path, folder)
        links = [name for name in folders if Path(path, name).is_symlink()]
        for name in (*files, *links):
            yield from _file_lines(f"{path}/{name}", f".{path[len(folder) :]}/{name}", sealed_at)


def _folder_lines(parent: str, folder: str) -> Iterator[str]:
    if os.lstat(parent).st_mode & 0o555 != 0o555:
        yield f"closed .{parent[len(folder) :]}"


def _file_lines(path: str, name: str, sealed_at: int | None) -> Iterator[str]:
    stat = os.lstat(path)
    if stats.S_ISLNK(stat.st_mode):
        yield f"link {name}"
        yield f"end {Path(path).readlink()}"
    if not stats.S_ISREG(stat.st_mode):
        return
    if name.rpartition("/")[2] != host.SEAL:
        yield f"size {stat.st_size} {name}"
    if stat.st_mode & 0o111 == 0o111:
        yield f"run {name}"
    if stat.st_mode & 0o444 != 0o444:
        yield f"closed {name}"
    if sealed_at is not None and stat.st_mtime_ns > sealed_at:
        yield f"written {name}"
