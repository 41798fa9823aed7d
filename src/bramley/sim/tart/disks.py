"""Disks of VMs: sparse files of the size that the guest sees, with a first line that says what is on them.

The line travels with every copy, as the content of a real disk does: which image it came from, what its guest does, how often
it was booted, and which blocks it has. A clone has its source's blocks: they come free when the last disk that has them is gone.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

FILE = "disk.img"
_LONGEST = 1 << 20


def write(bundle: str, content: Mapping[str, Any], *, virtual: int) -> None:
    """Make a disk, or replace what is on it."""
    line = json.dumps(content, sort_keys=True).encode() + b"\n"
    # Opened without truncation, so that a reader never sees an empty disk.
    descriptor = os.open(os.path.join(bundle, FILE), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, line + b"\0", 0)
        os.ftruncate(descriptor, max(virtual, len(line)))
    finally:
        os.close(descriptor)


def content(bundle: str) -> dict[str, Any]:
    """Return what is on the disk; an image made by other means is empty."""
    with open(os.path.join(bundle, FILE), "rb") as file:
        line = file.read(1 << 12)
        if b"\n" not in line:
            line += file.read(_LONGEST)
    try:
        found = json.loads(line.split(b"\n", 1)[0])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def virtual(bundle: str) -> int:
    """Return the size that the guest sees."""
    return os.stat(os.path.join(bundle, FILE)).st_size


def change(bundle: str, **changes: Any) -> None:
    """Change some of what is on a disk."""
    write(bundle, {**content(bundle), **changes}, virtual=virtual(bundle))


def blocks(bundle: str) -> dict[str, int]:
    """Return the bytes of a disk by where they were written; a folder without a disk has none."""
    try:
        found: dict[str, int] = content(bundle).get("blocks", {})
    except FileNotFoundError:
        return {}
    return found


def size(bundle: str) -> int:
    """Return the allocated bytes, shared blocks included."""
    return sum(blocks(bundle).values())
