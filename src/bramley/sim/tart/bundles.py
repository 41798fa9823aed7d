"""The files of one VM: its config.json, its disk, copies of bundles, and their removal.

A process that runs a VM must not open that VM's config.json: closing it would drop the lock that marks it as running. A disk is a
sparse file of the size that the guest sees; its first line is JSON with its image, script, boots and blocks, and is copied with it. A
clone shares its source's blocks: they are free when the last disk that has them is gone.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from bramley.sim.tart import layout
from bramley.sim.tart.failures import Failed, no_file
from bramley.sim.tart.layout import DISK
from bramley.sim.tart.settings import Context

_LONGEST = 1 << 20
MIB = 1 << 20


def read_config(bundle: str) -> dict[str, Any]:
    """Return a VM's configuration with tart's defaults for what it leaves out."""
    try:
        with open(os.path.join(bundle, layout.CONFIG), encoding="utf-8") as file:
            config: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        raise no_file(layout.CONFIG) from None
    except ValueError:
        # Another process is writing it in place.
        raise Failed(
            1,
            "Error: The data couldn’t be read because it isn’t in the correct format.",
        ) from None
    return {"os": "darwin", "arch": "arm64", "diskFormat": "raw", **config}


def write_config(bundle: str, config: Mapping[str, Any]) -> None:
    """Write the configuration in place, as tart does."""
    with open(os.path.join(bundle, layout.CONFIG), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)


def new_config(context: Context, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a VM with these CPUs, memory and system."""
    config = {
        "version": 1,
        "os": facts["os"],
        "arch": "arm64",
        "cpuCountMin": facts["cpu_min"],
        "cpuCount": facts["cpu"],
        "memorySizeMin": facts["memory_min_mb"] * MIB,
        "memorySize": facts["memory_mb"] * MIB,
        "macAddress": new_mac(context),
        "display": {"width": 1024, "height": 768},
        "diskFormat": "raw",
    }
    if facts["os"] == "darwin":
        config |= {"ecid": new_serial(context), "hardwareModel": "c2ltdWxhdGVkIE1hYw=="}
    return config


def hardware(config: Mapping[str, Any]) -> list[Any]:
    """Return what must be the same to restore a saved state."""
    return [config.get(each) for each in ("cpuCount", "memorySize", "macAddress", "ecid")]


def new_mac(context: Context) -> str:
    """Return a random address of the local kind."""
    octets = context.entropy(6)
    return ":".join(f"{octet:02x}" for octet in (octets[0] & 0xFC | 0x02, *octets[1:]))


def new_serial(context: Context) -> str:
    """Return a random machine identifier."""
    from base64 import b64encode

    return b64encode(context.entropy(8)).decode()


def new_staging(context: Context, name: str | None = None) -> str:
    """Make a staging folder; with a name it may exist already."""
    name = name or _uuid(context.entropy(16).hex())
    folder = os.path.join(layout.staging(context.home), name)
    os.makedirs(folder, exist_ok=True)
    return folder


def _uuid(digits: str) -> str:
    """Return a name as tart gives to the staging of all but pulls."""
    text = digits.upper()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def copy_file(source: str, target: str, file: str) -> None:
    """Copy a small file of a bundle."""
    try:
        with open(os.path.join(source, file), "rb") as read:
            content = read.read()
    except FileNotFoundError:
        raise no_file(file) from None
    with open(os.path.join(target, file), "wb") as write:
        write.write(content)


def copy_disk(source: str, target: str) -> None:
    """Clone a disk: the copy shares all blocks."""
    try:
        content, virtual = disk_content(source), virtual_size(source)
    except FileNotFoundError:
        raise no_file(layout.DISK) from None
    write_disk(target, content, virtual_size=virtual)


def remove(path: str) -> None:
    """Remove a folder with its content, a file or a link; a missing one is no error."""
    if os.path.islink(path) or not os.path.isdir(path):
        _unlink(path)
        return
    for folder, folders, files in os.walk(path, topdown=False):
        for entry in (*files, *folders):
            each = os.path.join(folder, entry)
            if os.path.isdir(each) and not os.path.islink(each):
                os.rmdir(each)
            else:
                _unlink(each)
    os.rmdir(path)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def touch(bundle: str, context: Context) -> None:
    """Record that a bundle was used; pruning depends on it."""
    now = context.now()
    change_disk(bundle, accessed=now)
    os.utime(bundle, (now, os.stat(bundle).st_mtime))


def accessed(bundle: str) -> float:
    """Return when a bundle was last used."""
    return float(disk_content(bundle).get("accessed", 0.0))


def write_disk(bundle: str, content: Mapping[str, Any], *, virtual_size: int) -> None:
    """Create a disk, or replace its content."""
    line = json.dumps(content, sort_keys=True).encode() + b"\n"
    # Without truncation first: another process must never read an empty disk.
    descriptor = os.open(os.path.join(bundle, DISK), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, line + b"\0", 0)
        os.ftruncate(descriptor, max(virtual_size, len(line)))
    finally:
        os.close(descriptor)


def disk_content(bundle: str) -> dict[str, Any]:
    """Return the content of a disk; one made by other means is empty."""
    with open(os.path.join(bundle, DISK), "rb") as file:
        line = file.read(1 << 12)
        if b"\n" not in line:
            line += file.read(_LONGEST)
    try:
        content = json.loads(line.split(b"\n", 1)[0])
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def virtual_size(bundle: str) -> int:
    """Return the size that the guest sees."""
    return os.stat(os.path.join(bundle, DISK)).st_size


def change_disk(bundle: str, **changes: Any) -> None:
    """Change some fields of a disk's content."""
    write_disk(bundle, {**disk_content(bundle), **changes}, virtual_size=virtual_size(bundle))


def disk_blocks(bundle: str) -> dict[str, int]:
    """Return the bytes of a disk by block id; a folder without a disk has none."""
    try:
        blocks: dict[str, int] = disk_content(bundle).get("blocks", {})
    except FileNotFoundError:
        return {}
    return blocks


def allocated_size(bundle: str) -> int:
    """Return the allocated bytes, shared blocks included."""
    return sum(disk_blocks(bundle).values())
