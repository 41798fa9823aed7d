"""Room on a Mac's disks: df and the part of diskutil that tells of a volume.

A Mac has one container; the system's volume and the data's share its room, and that is why both tell the same.
"""

from __future__ import annotations

import plistlib
from dataclasses import dataclass

from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import refusing

_HEAD = (
    "Filesystem     1024-blocks      Used Available Capacity iused      ifree %iused  Mounted on\n"
)
DATA = "/System/Volumes/Data"


@dataclass(frozen=True, slots=True)
class Volume:
    """One mounted volume."""

    device: str
    mounted: str
    total: int
    free: int


def volumes(mac: Mac) -> list[Volume]:
    """Return what is mounted, the system first."""
    disk = mac.state["disk"]
    total, free = int(disk["total_bytes"]), int(disk["free_bytes"])
    return [
        Volume("/dev/disk3s1s1", "/", total, free),
        Volume("/dev/disk3s5", DATA, total, free),
    ]


def df(mac: Mac, call: Call) -> Said:
    """Tell the room of all volumes, or of those that hold these paths, in kilobytes."""
    options = [word for word in call.argv[1:] if word.startswith("-")]
    paths = [word for word in call.argv[1:] if not word.startswith("-")]
    if not options or set("".join(options)) - set("-kP"):
        return refusing.not_modelled(call, "df without -k, or with other options than -k and -P")
    missing = [path for path in paths if not mac.files.exists(path)]
    if missing:
        return Said(1, err=f"df: {missing[0]}: No such file or directory\n")
    shown = [_of(mac, path) for path in paths] or volumes(mac)
    is_posix = "P" in "".join(options)
    head = "Filesystem 1024-blocks Used Available Capacity Mounted on\n" if is_posix else _HEAD
    return Said(out=head + "".join(_row(volume, is_posix=is_posix) for volume in shown))


def diskutil(mac: Mac, call: Call) -> Said:
    """Tell of a volume as text or as a property list; changing disks is not modelled."""
    match call.argv[1:]:
        case ("info", "-plist", path):
            as_list = True
        case ("info", path):
            as_list = False
        case _:
            return refusing.not_modelled(call)
    found = next((one for one in volumes(mac) if path in {one.mounted, one.device}), None)
    if found is None:
        return Said(1, err=f"Could not find disk: {path}\n")
    facts = {
        "DeviceNode": found.device,
        "MountPoint": found.mounted,
        "FilesystemType": "apfs",
        "APFSContainerReference": "disk3",
        "APFSContainerFree": found.free,
        "APFSContainerSize": found.total,
        "FileVault": bool(mac.state["filevault"]),
    }
    if as_list:
        return Said(out=plistlib.dumps(facts).decode())
    return Said(out="".join(f"   {name + ':':<26}{value}\n" for name, value in facts.items()))


def _of(mac: Mac, path: str) -> Volume:
    """Return the volume of a path: everything that may be written lies on the data's."""
    system, data = volumes(mac)
    real = mac.files.real(path)
    return system if real == "/" or real.startswith(("/System/Library", "/bin", "/sbin")) else data


def _row(volume: Volume, *, is_posix: bool) -> str:
    total, free = volume.total // 1024, volume.free // 1024
    used = total - free
    percent = f"{-(-100 * used // (total or 1))}%"
    words = [volume.device, total, used, free, percent]
    if not is_posix:
        words += [404_167, free * 8, "0%"]
    return " ".join(str(word) for word in (*words, volume.mounted)) + "\n"
