"""The files of one VM: its config.json, copies of bundles, and their removal.

A process that runs a VM must not open that VM's config.json: closing it would drop the lock that says so.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from bramley.sim.tart import disks, layout
from bramley.sim.tart.failures import Failed, no_file
from bramley.sim.tart.world import World

MIB = 1 << 20


def read_config(bundle: str) -> dict[str, Any]:
    """Return a VM's configuration with tart's defaults for what it leaves out."""
    try:
        with open(os.path.join(bundle, layout.CONFIG), encoding="utf-8") as file:
            config: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        raise no_file(layout.CONFIG) from None
    except ValueError:
        # Another process writes it in place right now.
        raise Failed(
            1,
            "Error: The data couldn’t be read because it isn’t in the correct format.",
        ) from None
    return {"os": "darwin", "arch": "arm64", "diskFormat": "raw", **config}


def write_config(bundle: str, config: Mapping[str, Any]) -> None:
    """Write the configuration in place, as tart does."""
    with open(os.path.join(bundle, layout.CONFIG), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)


def new_config(world: World, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a VM with these CPUs, memory and system."""
    config = {
        "version": 1,
        "os": facts["os"],
        "arch": "arm64",
        "cpuCountMin": facts["cpu_min"],
        "cpuCount": facts["cpu"],
        "memorySizeMin": facts["memory_min_mb"] * MIB,
        "memorySize": facts["memory_mb"] * MIB,
        "macAddress": new_mac(world),
        "display": {"width": 1024, "height": 768},
        "diskFormat": "raw",
    }
    if facts["os"] == "darwin":
        config |= {"ecid": new_serial(world), "hardwareModel": "c2ltdWxhdGVkIE1hYw=="}
    return config


def new_mac(world: World) -> str:
    """Return a random address of the local kind."""
    octets = world.around.entropy(6)
    return ":".join(f"{octet:02x}" for octet in (octets[0] & 0xFC | 0x02, *octets[1:]))


def new_serial(world: World) -> str:
    """Return a random machine identifier."""
    from base64 import b64encode

    return b64encode(world.around.entropy(8)).decode()


def new_staging(world: World, name: str | None = None) -> str:
    """Make a folder for unfinished work; with a name it may be there already."""
    name = name or world.around.entropy(16).hex()
    folder = os.path.join(layout.staging(world.home), name)
    os.makedirs(folder, exist_ok=True)
    return folder


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
        content, virtual = disks.content(source), disks.virtual(source)
    except FileNotFoundError:
        raise no_file(disks.FILE) from None
    disks.write(target, content, virtual=virtual)


def remove(path: str) -> None:
    """Remove a folder with everything in it, a file or a link; what is gone is no error."""
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


def touch(bundle: str, world: World) -> None:
    """Note that a bundle was used; pruning goes by it."""
    now = world.around.now()
    disks.change(bundle, accessed=now)
    os.utime(bundle, (now, os.stat(bundle).st_mtime))


def accessed(bundle: str) -> float:
    """Return when a bundle was last used."""
    return float(disks.content(bundle).get("accessed", 0.0))
