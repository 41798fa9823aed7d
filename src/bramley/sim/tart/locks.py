"""Real locks of one process: `flock` for folders and unfinished work, POSIX locks for running VMs.

A POSIX lock is lost by closing any descriptor of its file, so a file that we hold one on is never opened a second time.
"""

import errno
import fcntl
import os
import struct
import sys

# struct flock: Linux has type and whence first, Darwin last.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"


class Locks:
    """What this process has locked, by path."""

    def __init__(self) -> None:
        self._flocks: dict[str, int] = {}
        self._locks: dict[str, int] = {}

    def flock(self, path: str) -> bool:
        """Try to take an `flock`; a path that is gone, or not what it was, cannot be had."""
        if path in self._flocks:
            return True
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        if _try_flock(descriptor, fcntl.LOCK_EX) and _is_still(path, descriptor):
            self._flocks[path] = descriptor
            return True
        os.close(descriptor)
        return False

    def unflock(self, path: str) -> None:
        """Give an `flock` back."""
        os.close(self._flocks.pop(path))

    def give(self, path: str) -> int:
        """Return the descriptor that holds an `flock`, which is the caller's from now on."""
        return self._flocks.pop(path)

    def is_flocked(self, path: str) -> bool:
        """Tell whether another process holds an `flock`."""
        if path in self._flocks:
            return False
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not _try_flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> bool:
        """Try to take the POSIX write lock of a file."""
        if path in self._locks:
            return True
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                raise
            return False
        self._locks[path] = descriptor
        return True

    def unlock(self, path: str) -> None:
        """Lose a POSIX lock."""
        os.close(self._locks.pop(path))

    def holder(self, path: str) -> int | None:
        """Return the process that holds the POSIX lock of a file, unless it is ours."""
        if path in self._locks:
            return None
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            return _holder(descriptor)
        finally:
            os.close(descriptor)


def _holder(descriptor: int) -> int | None:
    asked = {"type": fcntl.F_RDLCK, "whence": 0, "start": 0, "len": 0, "pid": 0}
    darwin = ("start", "len", "pid", "type", "whence")
    linux = ("type", "whence", "start", "len", "pid")
    order = darwin if sys.platform == "darwin" else linux
    packed = struct.pack(_FLOCK, *(asked[field] for field in order))
    answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, packed))
    told = dict(zip(order, answer, strict=True))
    return None if told["type"] == fcntl.F_UNLCK else told["pid"]


def _try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: str, descriptor: int) -> bool:
    """Tell whether the path still names what we opened, which another process may have moved away meanwhile."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
