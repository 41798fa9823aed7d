"""The folders that host and guest share, one per VM: secrets for the guest to read, and a folder where it may write.

A guest runs arbitrary code as root inside its VM, so everything in its folder is hostile: no link is followed, no file is opened
that could block, and removal handles any tree, however deep, large or read-only. The only trusted paths are our own root and the
files that the agent itself wrote into a VM's folder.
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
# Without NONBLOCK opening a pipe would block until another process opens it for writing.
_GUEST_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PRIVATE_FOLDER = 0o700
_WORLD_WRITABLE = 0o777
_PRIVATE_FILE = 0o600
# The number of entries that are removed before other tasks may run.
_BATCH = 256
_MOVED = ".moved-"
_UNREMOVABLE = ".aside-"


@dataclass(frozen=True, slots=True)
class Shares:
    """The folders that a VM mounts: `env` read-only, `status` writable."""

    env: Path
    status: Path


@dataclass(frozen=True, slots=True)
class UserData:
    """The folders of all VMs below one root."""

    root: Path

    def prepare(self, vm: str) -> Shares:
        """Create the folders of a VM, or correct the modes of existing ones."""
        self.root.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        with _open_root(self.root) as root:
            _create_folder(root, _component(vm), _PRIVATE_FOLDER)
            with _subfolder(root, vm) as folder:
                _create_folder(folder, guest.STATUS_SHARE, _WORLD_WRITABLE)
        return self.shares(vm)

    def shares(self, vm: str) -> Shares:
        """Return the paths of a VM's folders, whether or not they exist."""
        folder = self.root / _component(vm)
        return Shares(folder, folder / guest.STATUS_SHARE)

    def write_environment(self, vm: str, text: str) -> None:
        """Replace the file of variables atomically; NotFound if the folder is gone."""
        self._replace(vm, guest.ENV_FILE, text)

    def write_token(self, vm: str, token: Secret) -> None:
        """Replace the token atomically: a guest reads the old one or the new one; NotFound if the folder is gone."""
        self._replace(vm, guest.TOKEN_FILE, token.reveal())

    def read_token(self, vm: str) -> Secret | None:
        """Return the token in the VM's folder, or None."""
        try:
            with _open_root(self.root) as root, _subfolder(root, vm) as folder:
                text = _read(folder, guest.TOKEN_FILE)
        except OSError:
            return None
        return Secret(text) if text else None

    def open_guest_file(self, vm: str, name: str) -> BinaryIO | None:
        """Open a file that the guest wrote; None unless it is a regular file in the status folder."""
        try:
            with (
                _open_root(self.root) as root,
                _subfolder(root, vm) as folder,
                _subfolder(folder, guest.STATUS_SHARE) as status,
            ):
                return open_regular_file(_component(name), dir_fd=status)
        except OSError:
            return None

    def vms(self) -> list[str]:
        """Return the VMs that have a folder here."""
        try:
            with os.scandir(self.root) as entries:
                folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return sorted(name for name in folders if not name.startswith(_UNREMOVABLE))

    async def remove(self, vm: str) -> None:
        """Remove the folders of a VM, secrets first; succeeds if there are none.

        Folders that cannot be removed are renamed and retried by `sweep`, because a guest must not block the deletion of its Pod.
        """
        try:
            with _open_root(self.root) as root:
                await self._remove_or_rename(root, _component(vm))
        except FileNotFoundError:
            return

    async def sweep(self) -> None:
        """Retry the removal of renamed folders."""
        with contextlib.suppress(FileNotFoundError), _open_root(self.root) as root:
            for name in self._renamed():
                try:
                    await _remove(root, name)
                except OSError as error:
                    logger.warning("Guest folder not removed", file=name, error=error)

    def _renamed(self) -> list[str]:
        return [path.name for path in self.root.iterdir() if path.name.startswith(_UNREMOVABLE)]

    async def _remove_or_rename(self, root: int, vm: str) -> None:
        try:
            await _remove(root, vm)
        except FileNotFoundError:
            raise
        except OSError as error:
            logger.warning("Guest folder not removed", vm=vm, error=error)
            inode = os.stat(vm, dir_fd=root, follow_symlinks=False).st_ino
            os.rename(vm, f"{_UNREMOVABLE}{inode}", src_dir_fd=root, dst_dir_fd=root)

    def _replace(self, vm: str, name: str, text: str) -> None:
        try:
            with _open_root(self.root) as root, _subfolder(root, vm) as folder:
                _write(folder, name, text.encode())
        except FileNotFoundError as error:
            raise errors.NotFound(f"the folder of VM {vm} is gone") from error


def open_regular_file(path: str | Path, *, dir_fd: int | None = None) -> BinaryIO | None:
    """Open a file for reading without following a link or blocking; None unless it is a regular file."""
    try:
        descriptor = os.open(path, _GUEST_FILE, dir_fd=dir_fd)
    except OSError:
        return None
    # Checked on the open file: under its name the guest could replace it between the check and the use.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb", buffering=0)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_root(root: Path) -> contextlib.AbstractContextManager[int]:
    # The root itself may be a link: it is configured by the administrator.
    return _closing(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _subfolder(folder: int, name: str) -> contextlib.AbstractContextManager[int]:
    return _closing(os.open(_component(name), _FOLDER, dir_fd=folder))


def _component(name: str) -> str:
    """Return the name if it is a single path component."""
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise errors.BadRequest(f"{name!r} is not a valid file name")
    return name


def _create_folder(folder: int, name: str, mode: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=folder)
    with _subfolder(folder, name) as created:
        # mkdir applies the umask of the process.
        os.fchmod(created, mode)


def _write(folder: int, name: str, content: bytes) -> None:
    temporary = f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    with os.fdopen(os.open(temporary, _NEW_FILE, _PRIVATE_FILE, dir_fd=folder), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _read(folder: int, name: str) -> str:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        return file.read().decode()


async def _remove(root: int, name: str) -> None:
    with _subfolder(root, name) as folder:
        # First: the removal of the rest may fail, and secrets must not stay behind.
        for secret in (guest.TOKEN_FILE, guest.ENV_FILE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(secret, dir_fd=folder)
        while entries := _first_entries(folder):
            for entry, is_folder in entries:
                await _remove_entry(folder, entry, is_folder=is_folder)
            await asyncio.sleep(0)
    os.rmdir(name, dir_fd=root)


async def _remove_entry(top: int, name: str, *, is_folder: bool) -> None:
    """Remove an entry of the top folder; its subfolders are moved to the top first.

    This flattens the tree instead of recursing, and at most two folders are open.
    """
    if not is_folder:
        os.unlink(name, dir_fd=top)
        return
    with _open_writable(top, name) as subfolder:
        while entries := _first_entries(subfolder):
            for entry, is_inner_folder in entries:
                if is_inner_folder:
                    _move_to_top(subfolder, entry, top)
                else:
                    os.unlink(entry, dir_fd=subfolder)
            await asyncio.sleep(0)
    os.rmdir(name, dir_fd=top)


def _first_entries(folder: int) -> list[tuple[str, bool]]:
    """Return the first entries of a folder, and which of them are folders; all of them may not fit into memory."""
    with os.scandir(folder) as entries:
        first = itertools.islice(entries, _BATCH)
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in first]


def _move_to_top(parent: int, name: str, top: int) -> None:
    # Moving a folder needs write permission for it, because its `..` entry changes.
    with _open_writable(parent, name) as subfolder:
        inode = os.fstat(subfolder).st_ino
    # Inode numbers are unique while the folder exists, so the name is free.
    os.rename(name, f"{_MOVED}{inode}", src_dir_fd=parent, dst_dir_fd=top)


@contextlib.contextmanager
def _open_writable(folder: int, name: str) -> Iterator[int]:
    """Open a folder and make it writable; the guest may have removed all permissions."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        # By name, because it cannot be opened. The guest has ended, so nothing can replace the folder by a link meanwhile.
        os.chmod(name, _PRIVATE_FOLDER, dir_fd=folder)
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
    with _closing(descriptor):
        os.fchmod(descriptor, _PRIVATE_FOLDER)
        yield descriptor
