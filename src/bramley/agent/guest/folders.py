"""The folders that host and guest share, one per VM: secrets for the guest to read, and a place where it may write.

A guest runs anybody's code with all rights inside its VM, so whatever lies in its place is hostile: no link is followed,
nothing is opened that could make us wait, and removing takes any tree, however deep, full or locked. The only paths that
are trusted are our own root and what we put into a VM's folder ourselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bramley.api.names import guest
from bramley.base import errors, log
from bramley.base.secret import Secret

logger = log.get(__name__)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Without NONBLOCK opening a pipe would wait for somebody to write into it.
_GUESTS_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OURS = 0o700
_ANYBODYS = 0o777
_PRIVATE = 0o600
# So many entries are looked at at once; then other tasks get their turn.
_BATCH = 256
_MOVED = ".moved-"
_ASIDE = ".aside-"


@dataclass(frozen=True, slots=True)
class Shares:
    """What a VM mounts: `env` to read, `status` to write."""

    env: Path
    status: Path


@dataclass(frozen=True, slots=True)
class UserData:
    """The folders of all VMs below one root."""

    root: Path

    def prepare(self, vm: str) -> Shares:
        """Make the folders of a VM, or bring those that are there to their modes."""
        self.root.mkdir(mode=_OURS, parents=True, exist_ok=True)
        with _opened(self.root) as root:
            _make(root, _part(vm), _OURS)
            with _inside(root, vm) as folder:
                _make(folder, guest.STATUS_SHARE, _ANYBODYS)
        return self.shares(vm)

    def shares(self, vm: str) -> Shares:
        """Return where the folders of a VM are, whether or not they exist."""
        folder = self.root / _part(vm)
        return Shares(folder, folder / guest.STATUS_SHARE)

    def write_environment(self, vm: str, text: str) -> None:
        """Replace the file of variables as a whole; NotFound when the folder is gone."""
        self._replace(vm, guest.ENV_FILE, text)

    def write_token(self, vm: str, token: Secret) -> None:
        """Replace the token as a whole: a guest reads the old one or the new one; NotFound when the folder is gone."""
        self._replace(vm, guest.TOKEN_FILE, token.reveal())

    def read_token(self, vm: str) -> Secret | None:
        """Return the token that the guest has, or None."""
        try:
            with _opened(self.root) as root, _inside(root, vm) as folder:
                text = _read(folder, guest.TOKEN_FILE)
        except OSError:
            return None
        return Secret(text) if text else None

    def open_guests_file(self, vm: str, name: str) -> BinaryIO | None:
        """Open a file that the guest wrote; None unless it is a regular file in its own place."""
        try:
            with (
                _opened(self.root) as root,
                _inside(root, vm) as folder,
                _inside(folder, guest.STATUS_SHARE) as status,
            ):
                number = os.open(_part(name), _GUESTS_FILE, dir_fd=status)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            return None
        return os.fdopen(number, "rb", buffering=0)

    def vms(self) -> list[str]:
        """Return the VMs that have a folder here."""
        try:
            with os.scandir(self.root) as entries:
                folders = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return sorted(name for name in folders if not name.startswith(_ASIDE))

    async def remove(self, vm: str) -> None:
        """Remove all that a VM had, secrets first; done if there is nothing.

        What cannot be removed is put aside and tried again by `sweep`: no guest may keep its Pod from going.
        """
        try:
            with _opened(self.root) as root:
                await self._remove_or_put_aside(root, _part(vm))
        except FileNotFoundError:
            return

    async def sweep(self) -> None:
        """Try once more to remove what was put aside."""
        with contextlib.suppress(FileNotFoundError), _opened(self.root) as root:
            for name in self._put_aside():
                try:
                    await _remove(root, name)
                except OSError as error:
                    logger.warning("A guest's files cannot be removed", file=name, error=error)

    def _put_aside(self) -> list[str]:
        return [one.name for one in self.root.iterdir() if one.name.startswith(_ASIDE)]

    async def _remove_or_put_aside(self, root: int, vm: str) -> None:
        try:
            await _remove(root, vm)
        except FileNotFoundError:
            raise
        except OSError as error:
            logger.warning("A guest's files cannot be removed", vm=vm, error=error)
            number = os.stat(vm, dir_fd=root, follow_symlinks=False).st_ino
            os.rename(vm, f"{_ASIDE}{number}", src_dir_fd=root, dst_dir_fd=root)

    def _replace(self, vm: str, name: str, text: str) -> None:
        try:
            with _opened(self.root) as root, _inside(root, vm) as folder:
                _write(folder, name, text.encode())
        except FileNotFoundError as error:
            raise errors.NotFound(f"VM {vm} has no folder any more") from error


@contextlib.contextmanager
def _opened(root: Path) -> Iterator[int]:
    # The root itself may be a link: whoever set the agent up chose it.
    number = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield number
    finally:
        os.close(number)


@contextlib.contextmanager
def _inside(folder: int, name: str) -> Iterator[int]:
    number = os.open(_part(name), _FOLDER, dir_fd=folder)
    try:
        yield number
    finally:
        os.close(number)


def _part(name: str) -> str:
    """Return a name that is one part of a path and nothing else."""
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise errors.BadRequest(f"{name!r} is no name of a file")
    return name


def _make(folder: int, name: str, mode: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=folder)
    with _inside(folder, name) as made:
        # The mask of the process took some of the mode away.
        os.fchmod(made, mode)


def _write(folder: int, name: str, content: bytes) -> None:
    fresh = f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=folder)
    with os.fdopen(os.open(fresh, _NEW_FILE, _PRIVATE, dir_fd=folder), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)


def _read(folder: int, name: str) -> str:
    number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(number, "rb") as file:
        return file.read().decode()


async def _remove(root: int, name: str) -> None:
    with _inside(root, name) as folder:
        for secret in (guest.TOKEN_FILE, guest.ENV_FILE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(secret, dir_fd=folder)
        while entries := _some(folder):
            for entry, is_folder in entries:
                await _drop(folder, entry, is_folder=is_folder)
            await asyncio.sleep(0)
    os.rmdir(name, dir_fd=root)


async def _drop(top: int, name: str, *, is_folder: bool) -> None:
    """Remove an entry of the top folder; what a folder holds of folders is moved to the top first.

    So the tree becomes flat instead of our stack deep, and two folders are open at most.
    """
    if not is_folder:
        os.unlink(name, dir_fd=top)
        return
    with _unlocked(top, name) as below:
        while entries := _some(below):
            for entry, is_inner_folder in entries:
                if is_inner_folder:
                    _lift(below, entry, top)
                else:
                    os.unlink(entry, dir_fd=below)
            await asyncio.sleep(0)
    os.rmdir(name, dir_fd=top)


def _some(folder: int) -> list[tuple[str, bool]]:
    """Return the first entries of a folder, and which of them are folders; all of them may be more than fits into memory."""
    with os.scandir(folder) as entries:
        first = itertools.islice(entries, _BATCH)
        return [(one.name, one.is_dir(follow_symlinks=False)) for one in first]


def _lift(below: int, name: str, top: int) -> None:
    # A folder can be moved only by somebody who may write into it, as it knows its parent.
    with _unlocked(below, name) as inner:
        number = os.fstat(inner).st_ino
    # No other folder has this number while this one lives, so the name is free.
    os.rename(name, f"{_MOVED}{number}", src_dir_fd=below, dst_dir_fd=top)


@contextlib.contextmanager
def _unlocked(folder: int, name: str) -> Iterator[int]:
    """Open a folder that the guest may have locked."""
    try:
        number = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        # By its name, as it cannot be opened; its guest runs no more, so nobody puts a link in its place.
        os.chmod(name, _OURS, dir_fd=folder)
        number = os.open(name, _FOLDER, dir_fd=folder)
    try:
        os.fchmod(number, _OURS)
        yield number
    finally:
        os.close(number)
