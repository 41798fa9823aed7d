"""Leases: protect VMs of this host from garbage collection while another process works with them.

A lease is a file that its holder keeps locked (`flock`), so it ends with the holder's process, however that ends. The file gets its
final name only after it is locked and written. The guard is a second lock: the collector holds it from decision to deletion, and
`acquire` locks it before the lease becomes visible, so no deletion that was decided before a lease is executed after it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec

_SUFFIX = ".lease"
_DRAFT = ".draft"
_GUARD = "guard.lock"


class Lease(msgspec.Struct, frozen=True):
    """What is leased; without names everything on this host."""

    vms: tuple[str, ...] = ()
    command: str = ""
    pid: int = 0

    @property
    def covers_everything(self) -> bool:
        """Return whether nothing at all may be deleted."""
        return not self.vms


def acquire(folder: Path, lease: Lease) -> int:
    """Acquire a lease and return the descriptor that holds it; waits while something is being deleted."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{lease.pid}-{secrets.token_hex(4)}"
    draft = folder / f"{name}{_DRAFT}"
    handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    # Locked before it is renamed: a visible lease that is not locked counts as ended and is removed.
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.write(handle, msgspec.json.encode(lease))
    guard = os.open(folder / _GUARD, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        draft.rename(draft.with_suffix(_SUFFIX))
    finally:
        os.close(guard)
    return handle


@contextlib.contextmanager
def guard(folder: Path) -> Iterator[bool]:
    """Block new leases in the `with` block; yields False if one is being acquired right now."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    guard = os.open(folder / _GUARD, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _try_lock(guard)
    finally:
        os.close(guard)


def held(folder: Path) -> list[Lease]:
    """Return the leases whose holders are alive, and remove the others."""
    leases = (_read(path) for path in sorted(folder.glob(f"*{_SUFFIX}")))
    return [lease for lease in leases if lease is not None]


def _read(path: Path) -> Lease | None:
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError:
        return Lease()
    try:
        if _try_lock(handle):
            path.unlink(missing_ok=True)
            return None
        return msgspec.json.decode(os.read(handle, 1 << 16), type=Lease)
    except msgspec.DecodeError:
        # It is held but unreadable, so it protects everything.
        return Lease()
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
