"""The files of a simulated Mac: real ones below its root, with links that lead nowhere else.

Owners are the kernel's where it lets us give files away, and kept in the state where it does not; modes are always real. Files are
written as a whole or not at all, and a full disk takes none. Most of what is done to a Mac ends here, so paths are texts: with
pathlib all tests of steps would take half as long again.
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
_MOST_LINKS = 32
_BLOCK = 128 * 1024


class Files:
    """What lies below one root; paths are the Mac's, absolute, and links are followed inside the root only."""

    def __init__(self, root: Path, store: Store, *, gives_away: bool | None = None) -> None:
        self._root = str(root)
        self._store = store
        # Only root may give files to others.
        self._gives_away = os.geteuid() == 0 if gives_away is None else gives_away
        # Links on the way to a folder are followed once in a moment: nobody else changes them meanwhile.
        self._folders: dict[str, str] = {}
        store.moment.when_over(self._folders.clear)

    def at(self, path: str, *, follow: bool = True) -> Path:
        """Return where a path of the Mac is on this machine; a link at its end is followed if wanted."""
        return Path(self._at(path, follow=follow))

    def _at(self, path: str, *, follow: bool = True) -> str:
        return self._root + self.real(path, follow=follow)

    def real(self, path: str, *, follow: bool = True) -> str:
        """Return the path without links; what is not there stands for itself."""
        folder, _, name = path.rpartition("/")
        if not self._store.moment.lasts or not name or name in (".", ".."):
            return self._followed(path, follow=follow)
        behind = self._folders.get(folder)
        if behind is None:
            behind = self._folders[folder] = self._followed(folder).rstrip("/")
        real = f"{behind}/{name}"
        return self._followed(path) if follow and self._target(real) is not None else real

    def _followed(self, path: str, *, follow: bool = True) -> str:
        ahead = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        behind: list[str] = []
        left = _MOST_LINKS
        while ahead:
            part = ahead.pop()
            if part == "..":
                del behind[-1:]
                continue
            target = self._target("/".join(("", *behind, part))) if ahead or follow else None
            if target is None:
                behind.append(part)
                continue
            left -= 1
            if left < 0:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                behind.clear()
            ahead += [word for word in reversed(target.split("/")) if word not in ("", ".")]
        return "/" + "/".join(behind)

    def _target(self, real: str) -> str | None:
        try:
            return os.readlink(self._root + real)
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Return whether something is there; a link that leads nowhere is nothing."""
        return os.path.lexists(self._at(path))

    def is_file(self, path: str) -> bool:
        """Return whether a file is there, also behind links."""
        return os.path.isfile(self._at(path))

    def is_folder(self, path: str) -> bool:
        """Return whether a folder is there, also behind links."""
        return os.path.isdir(self._at(path))

    def is_executable(self, path: str) -> bool:
        """Return whether a file is there that somebody may execute."""
        try:
            mode = os.stat(self._at(path)).st_mode
        except OSError:
            return False
        return stats.S_ISREG(mode) and bool(mode & 0o111)

    def find(self, path: str) -> os.stat_result | None:
        """Return the kernel's facts about what is at a path, a link itself included; None if nothing is."""
        try:
            return os.lstat(self._at(path, follow=False))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def target(self, path: str) -> str:
        """Return where a link points to, as it is written in it."""
        return os.readlink(self._at(path, follow=False))

    def read(self, path: str, *, most: int = -1) -> bytes | None:
        """Return what a file holds, or its beginning; None if there is none."""
        try:
            with open(self._at(path), "rb") as file:
                return file.read(most)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def text(self, path: str) -> str:
        """Return what a file holds as text; nothing if there is none."""
        return (self.read(path) or b"").decode("utf-8", "replace")

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file."""
        seen = hashlib.sha256()
        with open(self._at(path), "rb") as file:
            while block := file.read(_BLOCK):
                seen.update(block)
        return seen.hexdigest()

    def names(self, path: str) -> list[str]:
        """Return what a folder holds, in order; nothing if there is none."""
        try:
            return sorted(os.listdir(self._at(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def walk(self, path: str = "/") -> Iterator[str]:
        """Yield everything below a folder, in order, without following links; the Mac's own memory is no part of it."""
        for inner, _ in self.facts(path):
            yield inner

    def facts(self, path: str = "/") -> Iterator[tuple[str, os.stat_result]]:
        """Yield everything below a folder, as `walk` does, with the kernel's facts about it; what goes meanwhile is left out."""
        real = self.real(path).rstrip("/")
        for name in self.names(real or "/"):
            inner = f"{real}/{name}"
            if inner == f"/{FOLDER}":
                continue
            try:
                seen = os.lstat(self._root + inner)
            except FileNotFoundError:
                # A Mac that runs has programs that remove files.
                continue
            yield inner, seen
            if stats.S_ISDIR(seen.st_mode):
                yield from self.facts(inner)

    def write(
        self, path: str, content: bytes, *, mode: int = 0o644, owner: str = ROOT_OWNER
    ) -> None:
        """Put a file there at once, in place of a file or link; its folder has to be there, and the disk must have room."""
        self.require_room(len(content))
        self._require_owner(owner)
        place = self._replaceable(path)
        fresh = _beside(place)
        with open(fresh, "wb") as file:
            file.write(content)
        os.chmod(fresh, mode)
        self._replace(fresh, place)
        self.own(path, owner, follow=False)

    def _replaceable(self, path: str) -> str:
        """Return where something may be put in place of a file or link."""
        place = self._at(path, follow=False)
        if _is_folder(place):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return place

    def _replace(self, old: str, new: str) -> None:
        os.replace(old, new)
        self._folders.clear()

    def _require_owner(self, owner: str) -> None:
        """Refuse a name that nobody has before anything is changed."""
        users.ids_of(self._store.read(), owner)

    def require_room(self, size: int) -> None:
        """Refuse what does not fit on the disk."""
        if size > self._store.read()["disk"]["free_bytes"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def make_folder(self, path: str, *, mode: int = 0o755, owner: str = ROOT_OWNER) -> None:
        """Make a folder, and parents of root's as needed, or give the one that is there this mode and owner."""
        self._require_owner(owner)
        real = self.real(path)
        if not os.path.isdir(self._root + real):
            parent = real.rpartition("/")[0] or "/"
            if not self.is_folder(parent):
                self.make_folder(parent)
            os.mkdir(self._root + real)
        self.own(real, owner)
        os.chmod(self._root + real, mode)

    def link(self, path: str, target: str) -> None:
        """Let a link point to a target, at once also where another was; links are root's."""
        place = self._replaceable(path)
        fresh = _beside(place)
        os.symlink(target, fresh)
        self._replace(fresh, place)
        self.own(path, ROOT_OWNER, follow=False)

    def rename(self, path: str, to: str) -> None:
        """Give something another name; a file there is replaced at once, a folder is not."""
        old, new = self.real(path, follow=False), self.real(to, follow=False)
        # Asked before anything else, so that it is told alike wherever owners are kept.
        os.lstat(self._root + old)
        if _is_folder(self._root + new):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), to)
        if old == new:
            return
        unkept = self._owners_by_place(old) if self._is_of_others(old, new) else {}
        self._replace(self._root + old, self._root + new)
        self._forget(new)
        self._move_owners(old, new)
        for moved, owner in unkept.items():
            self.own(new + moved[len(old) :], owner, follow=False)

    def remove(self, path: str) -> None:
        """Remove a file, a link or a whole folder; nothing there is fine."""
        real = self.real(path, follow=False)
        if _is_folder(self._root + real):
            shutil.rmtree(self._root + real)
        else:
            with suppress(FileNotFoundError):
                os.unlink(self._root + real)
        self._folders.clear()
        self._forget(real)

    def mode(self, path: str) -> int:
        """Return the permission bits of what is at a path."""
        return stats.S_IMODE(os.stat(self._at(path)).st_mode)

    def owner(self, path: str, *, follow: bool = True) -> str:
        """Return who owns it, as in `root:wheel`."""
        real = self.real(path, follow=follow)
        return self.owner_of(real, os.lstat(self._root + real))

    def owner_of(self, real: str, seen: os.stat_result) -> str:
        """Return who owns what `facts` has told of."""
        state = self._store.read()
        kept = state["owners"].get(real)
        if kept is not None:
            return str(kept)
        if not self._gives_away:
            return users.owner_by_place(state, real)
        return users.owner_by_ids(state, seen.st_uid, seen.st_gid)

    def own(self, path: str, owner: str, *, follow: bool = True) -> None:
        """Give a file, folder or link to an owner, as in `m1:staff`."""
        real = self.real(path, follow=follow)
        uid, gid = users.ids_of(self._store.read(), owner)
        if self._gives_away and _give(self._root + real, uid, gid):
            self._forget(real, also_below=False)
        elif self.owner(real, follow=False) != owner:
            with self._store.change() as state:
                state["owners"][real] = owner

    def _is_of_others(self, old: str, new: str) -> bool:
        """Return whether files of which no owner is kept belong to somebody else there."""
        state = self._store.read()
        here, there = (users.owner_by_place(state, path) for path in (old, new))
        return not self._gives_away and here != there

    def _owners_by_place(self, real: str) -> dict[str, str]:
        kept = self._store.read()["owners"]
        paths = (real, *self.walk(real)) if _is_folder(self._root + real) else (real,)
        return {path: self.owner(path, follow=False) for path in paths if path not in kept}

    def _forget(self, real: str, *, also_below: bool = True) -> None:
        gone = [
            path
            for path in self._store.read()["owners"]
            if path == real or (also_below and path.startswith(f"{real}/"))
        ]
        if gone:
            with self._store.change() as state:
                for path in gone:
                    del state["owners"][path]

    def _move_owners(self, old: str, new: str) -> None:
        kept = self._store.read()["owners"]
        moved = {path: who for path, who in kept.items() if f"{path}/".startswith(f"{old}/")}
        if moved:
            with self._store.change() as state:
                for path, who in moved.items():
                    del state["owners"][path]
                    state["owners"][new + path[len(old) :]] = who


def _is_folder(place: str) -> bool:
    """Return whether a folder is there itself; a link is not followed, which here would lead out of the root."""
    try:
        return stats.S_ISDIR(os.lstat(place).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _beside(place: str) -> str:
    folder, _, name = place.rpartition("/")
    return f"{folder}/.{name}.{os.getpid()}"


def _give(place: str, uid: int, gid: int) -> bool:
    try:
        os.lchown(place, uid, gid)
    except OSError:
        # A root of a namespace that does not know these ids.
        return False
    return True


def copy_tree(old: str, new: str) -> None:
    """Copy a folder to where nothing is yet, with all that it holds."""
    os.mkdir(new)
    with os.scandir(old) as entries:
        for entry in entries:
            _copy_one(entry, f"{new}/{entry.name}")
    _be_like(os.lstat(old), new)


def _copy_one(entry: os.DirEntry[str], new: str) -> None:
    if entry.is_dir(follow_symlinks=False):
        copy_tree(entry.path, new)
        return
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), new)
    else:
        shutil.copyfile(entry.path, new)
    _be_like(entry.stat(follow_symlinks=False), new)


def _be_like(seen: os.stat_result, new: str) -> None:
    """Give what was copied the owner, mode and times of what it was copied from."""
    # A change of owner takes bits of the mode away, so it comes first.
    if (seen.st_uid, seen.st_gid) != (os.geteuid(), os.getegid()):
        os.lchown(new, seen.st_uid, seen.st_gid)
    if not stats.S_ISLNK(seen.st_mode):
        os.chmod(new, stats.S_IMODE(seen.st_mode))
    os.utime(new, ns=(seen.st_atime_ns, seen.st_mtime_ns), follow_symlinks=False)
