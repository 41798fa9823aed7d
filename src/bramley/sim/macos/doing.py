"""The commands of the vocabulary on the model of a Mac: what rendered shell does behind SSH, with the same effects and words.

All but a program of the user's own goes through sudo's rules. A file is written beside its place and renamed. Waiting, restarting
and what may happen to a line are not done here.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from bramley.api.names import host
from bramley.base.secret import Secret, SecretBytes
from bramley.host.commands import Folder, Link, Remove, Rename, Run, Seal, Stream, Write
from bramley.sim.macos import sealing
from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import sudo, sudo_rules

# The exit code of scripts that did nothing, as rendered shell has it.
UNDONE = 125
# How a new file is called until it is in its place; the digits stand for a token of each call.
_NEW = ".bramley-new.0123456789abcdef."


class Failed(Exception):
    """A command that ended with a code that is not accepted; the text may hold what it printed."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class PasswordRefused(Failed):
    """sudo did not take the password that was sent."""


def run(mac: Mac, user: str, command: Run) -> None:
    """Run a program, as root through sudo; a code of sudo's own is never accepted."""
    # What is typed at a prompt ends with its line.
    stdin = content_of(command.stdin) + (b"\n" if command.prompt else b"")
    if command.as_root:
        become_root(mac, user, command.sudo_password)
        user = "root"
    call = Call(command.argv, user, stdin, on_terminal=bool(command.prompt))
    _accept(mac.run(call), command.accepts)


def _accept(said: Said, accepts: tuple[int, ...] = (0,)) -> None:
    if said.code not in accepts:
        raise Failed(said.code, (said.err or said.out).strip())


def become_root(mac: Mac, user: str, password: Secret | None = None) -> None:
    """Fail with sudo's words if it does not let the user in; the password is sent once, and only if sudo asks."""
    asks = password is not None and not sudo_rules.of(mac, user).without_password
    words = ("-S", "-p", "") if password else ("-n",)
    stdin = content_of(password) + b"\n" if password and asks else b""
    verdict = sudo.decide(mac, Call(("sudo", *words, "--", "true"), user, stdin))
    if isinstance(verdict, Said):
        error = PasswordRefused if "incorrect password" in verdict.err else Failed
        raise error(verdict.code, verdict.err.strip())


def content_of(content: bytes | Secret) -> bytes:
    """Return the bytes that are to arrive."""
    if isinstance(content, SecretBytes):
        return content.reveal_bytes()
    return content.reveal().encode() if isinstance(content, Secret) else content


def write(mac: Mac, user: str, command: Write) -> None:
    """Write a file, let it be checked, and put it in its place."""
    become_root(mac, user, command.sudo_password)
    with _placing(mac, command.path) as new:
        mac.files.write(new, content_of(command.content), mode=command.mode)
        mac.files.own(new, command.owner, follow=False)
        if command.check:
            argv = tuple(new if word == "{}" else word for word in command.check)
            said = mac.run(Call(argv, "root"))
            if said.code:
                told = f"{said.err or said.out}{argv[0]} does not accept the new file"
                raise Failed(UNDONE, told)
        mac.files.rename(new, command.path)


async def stream(mac: Mac, user: str, command: Stream, blocks: AsyncIterator[bytes]) -> None:
    """Receive an artifact, see that it is whole, and put it in its place."""
    become_root(mac, user)
    artifact = command.artifact
    with _placing(mac, command.path) as new:
        mac.files.require_room(artifact.size)
        size, digest = await _receive(mac, new, blocks)
        if size != artifact.size:
            raise Failed(UNDONE, "not all bytes have come")
        if digest != artifact.sha256:
            raise Failed(UNDONE, "the bytes that came are not those that were sent")
        mac.files.at(new).chmod(command.mode)
        mac.files.own(new, command.owner, follow=False)
        mac.files.rename(new, command.path)


async def _receive(mac: Mac, path: str, blocks: AsyncIterator[bytes]) -> tuple[int, str]:
    seen, size = hashlib.sha256(), 0
    with mac.files.at(path).open("wb") as new:
        async for block in blocks:
            new.write(block)
            seen.update(block)
            size += len(block)
    return size, seen.hexdigest()


@contextmanager
def _placing(mac: Mac, path: str) -> Iterator[str]:
    """Give out a name beside a path, which what is made there has until it is renamed; only a cut leaves it behind, for the next one."""
    folder, _, name = path.rpartition("/")
    if not mac.files.is_folder(folder or "/"):
        raise Failed(UNDONE, f"the folder {folder or '/'} is not there")
    _refuse_folder(mac, path, follow=False)
    new = f"{folder}/{_NEW}{name}"
    mac.files.remove(new)
    try:
        with _failing():
            yield new
    except Failed:
        mac.files.remove(new)
        raise


def _refuse_folder(mac: Mac, path: str, *, follow: bool) -> None:
    found = mac.files.at(path, follow=follow)
    if found.is_dir() and (follow or not found.is_symlink()):
        raise Failed(UNDONE, f"{path} is a folder")


@contextmanager
def _failing() -> Iterator[None]:
    """Turn what files and owners refuse into a command that failed."""
    try:
        yield
    except OSError as error:
        raise Failed(UNDONE, error.strerror or type(error).__name__) from error
    except LookupError as error:
        raise Failed(UNDONE, f"chown: {error.args[0]}") from error


def folder(mac: Mac, user: str, command: Folder) -> None:
    """Make a folder, or change its owner and mode."""
    become_root(mac, user)
    with _failing():
        mac.files.make_folder(command.path, mode=command.mode, owner=command.owner)


def link(mac: Mac, user: str, command: Link) -> None:
    """Let a link point to a target."""
    become_root(mac, user)
    with _placing(mac, command.path) as new:
        mac.files.link(new, command.target)
        mac.files.rename(new, command.path)


def rename(mac: Mac, user: str, command: Rename) -> None:
    """Give another name; a folder is not replaced, nor moved into."""
    become_root(mac, user)
    _refuse_folder(mac, command.to, follow=True)
    with _failing():
        mac.files.rename(command.path, command.to)


def remove(mac: Mac, user: str, command: Remove) -> None:
    """Remove whatever is there."""
    become_root(mac, user)
    with _failing():
        mac.files.remove(command.path)


def seal(mac: Mac, user: str, command: Seal) -> None:
    """Note in a folder what it holds."""
    become_root(mac, user)
    if not mac.files.is_folder(command.path):
        raise Failed(UNDONE, f"the folder {command.path} is not there")
    with _failing():
        mac.files.write(f"{command.path}/{host.SEAL}", b"")
        told = f"{sealing.digest(mac.files.at(command.path))}\n"
        mac.files.write(f"{command.path}/{host.SEAL}", told.encode())
