"""The files of a simulated Mac: real ones below its root, with links that lead nowhere else.

Owners are the kernel's where we may change them, and kept in the state elsewhere; modes are always real. Files are written by a
rename, and a full disk accepts none. Most operations on a Mac end here, so paths are strings: with pathlib all tests of steps would
take half as long again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat as stats
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bramley.sim.macos import users
from bramley.sim.macos.state import FOLDER, Store

ROOT_OWNER = "root:wheel"
_MAX_LINKS = 32
_BLOCK = 128 * 1024


class Files:
    """The files below one root; paths are absolute paths of the Mac, and links are followed inside the root only."""

    def __init__(self, root: Path, store: Store, *, can_chown: bool | None = None) -> None:
        self._root = str(root)
        self._store = store
        # Only root may change owners.
        self._can_chown = os.geteuid() == 0 if can_chown is None else can_chown
        # Real paths of folders, within a `caching` block.
        self._folders: dict[str, str] = {}
        store.on_cache_end(self._folders.clear)

    def at(self, path: str, *, follow: bool = True) -> Path:
        """Return where a path of the Mac is on this machine; `follow` also follows a link at its end."""
        return Path(self._at(path, follow=follow))

    def _at(self, path: str, *, follow: bool = True) -> str:
        return self._root + self.real(path, follow=follow)

    def real(self, path: str, *, follow: bool = True) -> str:
        """Return the path without links; missing parts stay as they are."""
        folder, _, name = path.rpartition("/")
        if not self._store.is_caching or not name or name in (".", ".."):
            return self._follow_links(path, follow=follow)
        real_parts = self._folders.get(folder)
        if real_parts is None:
            real_parts = self._folders[folder] = self._follow_links(folder).rstrip("/")
        real = f"{real_parts}/{name}"
        return self._follow_links(path) if follow and self._target(real) is not None else real

    def _follow_links(self, path: str, *, follow: bool = True) -> str:
        remaining = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        real_parts: list[str] = []
        links_left = _MAX_LINKS
        while remaining:
            part = remaining.pop()
            if part == "..":
                del real_parts[-1:]
                continue
            target = (
                self._target("/".join(("", *real_parts, part))) if remaining or follow else None
            )
            if target is None:
                real_parts.append(part)
                continue
            links_left -= 1
            if links_left < 0:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                real_parts.clear()
            remaining += [word for word in reversed(target.split("/")) if word not in ("", ".")]
        return "/" + "/".join(real_parts)

    def _target(self, real: str) -> str | None:
        try:
            return os.readlink(self._root + real)
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Return whether the path exists; a dangling link does not count."""
        return os.path.lexists(self._at(path))

    def is_file(self, path: str) -> bool:
        """Return whether the path is a file, following links."""
        return os.path.isfile(self._at(path))

    def is_folder(self, path: str) -> bool:
        """Return whether the path is a folder, following links."""
        return os.path.isdir(self._at(path))

    def is_executable(self, path: str) -> bool:
        """Return whether the path is a file with any execute permission."""
        try:
            mode = os.stat(self._at(path)).st_mode
        except OSError:
            return False
        return stats.S_ISREG(mode) and bool(mode & 0o111)

    def find(self, path: str) -> os.stat_result | None:
        """Return the `lstat` of a path; None if it does not exist."""
        try:
            return os.lstat(self._at(path, follow=False))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def target(self, path: str) -> str:
        """Return the target of a link as it is stored."""
        return os.readlink(self._at(path, follow=False))

    def read(self, path: str, *, limit: int = -1) -> bytes | None:
        """Return the content of a file, at most `limit` bytes; None if there is none."""
        try:
            with open(self._at(path), "rb") as file:
                return file.read(limit)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def text(self, path: str) -> str:
        """Return the content of a file as text; empty if there is none."""
        return (self.read(path) or b"").decode("utf-8", "replace")

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file."""
        hasher = hashlib.sha256()
        with open(self._at(path), "rb") as file:
            while block := file.read(_BLOCK):
                hasher.update(block)
        return hasher.hexdigest()

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; empty if there is none."""
        try:
            return sorted(os.listdir(self._at(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def walk(self, path: str = "/") -> Iterator[str]:
        """Yield all paths below a folder, in order, without following links; the Mac's state folder is excluded."""
        yield from (inner for inner, _ in self.facts(path))

    def facts(self, path: str = "/") -> Iterator[tuple[str, os.stat_result]]:
        """Yield all paths below a folder, as `walk` does, with their `lstat`; files that vanish meanwhile are left out."""
        real = self.real(path).rstrip("/")
        for name in self.names(real or "/"):
            inner = f"{real}/{name}"
            if inner == f"/{FOLDER}":
                continue
            try:
                stat = os.lstat(self._root + inner)
            except FileNotFoundError:
                # Programs of a running Mac may remove files meanwhile.
                continue
            yield inner, stat
            if stats.S_ISDIR(stat.st_mode):
                yield from self.facts(inner)

    def write(
        self, path: str, content: bytes, *, mode: int = 0o644, owner: str = ROOT_OWNER
    ) -> None:
        """Write a file atomically, replacing a file or link; its folder must exist, and the disk must have room."""
        self.require_room(len(content))
        self._require_owner(owner)
        target = self._replaceable_path(path)
        temporary = _temporary_path(target)
        with open(temporary, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        self._replace(temporary, target)
        self.chown(path, owner, follow=False)

    def _replaceable_path(self, path: str) -> str:
        """Return where a file or link may be replaced; a folder may not."""
        target = self._at(path, follow=False)
        if _is_folder(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return target

    def _replace(self, old: str, new: str) -> None:
        os.replace(old, new)
        self._folders.clear()

    def _require_owner(self, owner: str) -> None:
        """Fail for an unknown owner before anything is changed."""
        users.ids_of(self._store.read(), owner)

    def require_room(self, size: int) -> None:
        """Fail if the disk has less free space."""
        if size > self._store.read()["disk"]["free_bytes"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def make_folder(self, path: str, *, mode: int = 0o755, owner: str = ROOT_OWNER) -> None:
        """Make a folder, with missing parents owned by root, or set mode and owner of an existing one."""
        self._require_owner(owner)
        real = self.real(path)
        if not os.path.isdir(self._root + real):
            parent = real.rpartition("/")[0] or "/"
            if not self.is_folder(parent):
                self.make_folder(parent)
            os.mkdir(self._root + real)
        self.chown(real, owner)
        os.chmod(self._root + real, mode)

    def link(self, path: str, target: str) -> None:
        """Make a link atomically, replacing a file or link; links are owned by root."""
        destination = self._replaceable_path(path)
        temporary = _temporary_path(destination)
        os.symlink(target, temporary)
        self._replace(temporary, destination)
        self.chown(path, ROOT_OWNER, follow=False)

    def rename(self, path: str, to: str) -> None:
        """Rename atomically; a file is replaced, a folder is not."""
        old, new = self.real(path, follow=False), self.real(to, follow=False)
        # First, so that a missing source fails the same way wherever owners are kept.
        os.lstat(self._root + old)
        if _is_folder(self._root + new):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), to)
        if old == new:
            return
        unrecorded = self._unrecorded_owners(old) if self._changes_owner(old, new) else {}
        self._replace(self._root + old, self._root + new)
        self._remove_owners(new)
        self._move_owners(old, new)
        for path_before, owner in unrecorded.items():
            self.chown(new + path_before[len(old) :], owner, follow=False)

    def remove(self, path: str) -> None:
        """Remove a file, a link or a whole folder; a missing one is no error."""
        real = self.real(path, follow=False)
        if _is_folder(self._root + real):
            shutil.rmtree(self._root + real)
        else:
            with suppress(FileNotFoundError):
                os.unlink(self._root + real)
        self._folders.clear()
        self._remove_owners(real)

    def mode(self, path: str) -> int:
        """Return the permission bits of a path."""
        return stats.S_IMODE(os.stat(self._at(path)).st_mode)

    def owner(self, path: str, *, follow: bool = True) -> str:
        """Return the owner, as in `root:wheel`."""
        real = self.real(path, follow=follow)
        return self.owner_of(real, os.lstat(self._root + real))

    def owner_of(self, real: str, stat: os.stat_result) -> str:
        """Return the owner of a path from `facts`."""
        state = self._store.read()
        recorded = state["owners"].get(real)
        if recorded is not None:
            return str(recorded)
        if not self._can_chown:
            return users.owner_by_path(state, real)
        return users.owner_by_ids(state, stat.st_uid, stat.st_gid)

    def chown(self, path: str, owner: str, *, follow: bool = True) -> None:
        """Set the owner of a file, folder or link, as in `m1:staff`."""
        real = self.real(path, follow=follow)
        uid, gid = users.ids_of(self._store.read(), owner)
        if self._can_chown and _chown(self._root + real, uid, gid):
            self._remove_owners(real, also_below=False)
        elif self.owner(real, follow=False) != owner:
            with self._store.change() as state:
                state["owners"][real] = owner

    def _changes_owner(self, old: str, new: str) -> bool:
        """Return whether files without a recorded owner would change their owner by a move."""
        state = self._store.read()
        old_owner, new_owner = (users.owner_by_path(state, path) for path in (old, new))
        return not self._can_chown and old_owner != new_owner

    def _unrecorded_owners(self, real: str) -> dict[str, str]:
        recorded = self._store.read()["owners"]
        paths = (real, *self.walk(real)) if _is_folder(self._root + real) else (real,)
        return {path: self.owner(path, follow=False) for path in paths if path not in recorded}

    def _remove_owners(self, real: str, *, also_below: bool = True) -> None:
        removed = [
            path
            for path in self._store.read()["owners"]
            if path == real or (also_below and path.startswith(f"{real}/"))
        ]
        if removed:
            with self._store.change() as state:
                for path in removed:
                    del state["owners"][path]

    def _move_owners(self, old: str, new: str) -> None:
        recorded = self._store.read()["owners"]
        moved = {path: recorded[path] for path in recorded if f"{path}/".startswith(f"{old}/")}
        if moved:
            with self._store.change() as state:
                for path, owner in moved.items():
                    del state["owners"][path]
                    state["owners"][new + path[len(old) :]] = owner


def _is_folder(path: str) -> bool:
    """Return whether a path is itself a folder; following a link would lead out of the root."""
    try:
        return stats.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _temporary_path(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{os.getpid()}"


def _chown(path: str, uid: int, gid: int) -> bool:
    try:
        os.lchown(path, uid, gid)
    except OSError:
        # root of a user namespace without these ids.
        return False
    return True


def copy_tree(old: str, new: str) -> None:
    """Copy a folder with its content; the target must not exist."""
    os.mkdir(new)
    with os.scandir(old) as entries:
        for entry in entries:
            _copy_one(entry, f"{new}/{entry.name}")
    _copy_attributes(os.lstat(old), new)


def _copy_one(entry: os.DirEntry[str], new: str) -> None:
    if entry.is_dir(follow_symlinks=False):
        copy_tree(entry.path, new)
        return
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), new)
    else:
        shutil.copyfile(entry.path, new)
    _copy_attributes(entry.stat(follow_symlinks=False), new)


def _copy_attributes(stat: os.stat_result, new: str) -> None:
    """Copy owner, mode and times."""
    # The owner must be set first: chown clears bits of the mode.
    if (stat.st_uid, stat.st_gid) != (os.geteuid(), os.getegid()):
        os.lchown(new, stat.st_uid, stat.st_gid)
    if not stats.S_ISLNK(stat.st_mode):
        os.chmod(new, stats.S_IMODE(stat.st_mode))
    os.utime(new, ns=(stat.st_atime_ns, stat.st_mtime_ns), follow_symlinks=False)
