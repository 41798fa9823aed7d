"""Programs that print properties of a Mac: sw_vers, uname, sysctl and df."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bramley.sim.macos.call import Call, Result, not_modelled
from bramley.sim.macos.mac import Mac

_HEAD = (
    "Filesystem     1024-blocks      Used Available Capacity iused      ifree %iused  Mounted on\n"
)
# Device and mount point; both volumes share the space of one container.
_SYSTEM, _DATA = ("/dev/disk3s1s1", "/"), ("/dev/disk3s5", "/System/Volumes/Data")
_USAGE = 1
# Darwin counted five more than macOS did up to 15; since 26 one less.
_SEQUOIA, _OLD_LEAD, _NEW_LEAD = 15, 9, -1


def df(mac: Mac, call: Call) -> Result:
    """Print the space of all volumes, or of those of these paths, in kilobytes."""
    options = "".join(word for word in call.argv[1:] if word.startswith("-"))
    paths = [word for word in call.argv[1:] if not word.startswith("-")]
    if not options or set(options) - set("-kP"):
        return not_modelled(call, "df without -k, or with other options than -k and -P")
    missing = [path for path in paths if not mac.files.exists(path)]
    if missing:
        return Result(1, err=f"df: {missing[0]}: No such file or directory\n")
    shown = [_volume_of(mac, path) for path in paths] or [_SYSTEM, _DATA]
    is_posix = "P" in options
    head = "Filesystem 1024-blocks Used Available Capacity Mounted on\n" if is_posix else _HEAD
    return Result(out=head + "".join(_row(mac, *volume, is_posix=is_posix) for volume in shown))


def _volume_of(mac: Mac, path: str) -> tuple[str, str]:
    """Return the volume of a path; everything writable is on the data volume."""
    real = mac.files.real(path)
    is_system = real == "/" or real.startswith(("/System/Library", "/bin", "/sbin"))
    return _SYSTEM if is_system else _DATA


def _row(mac: Mac, device: str, mount_point: str, *, is_posix: bool) -> str:
    disk = mac.state["disk"]
    total, free = disk["total_bytes"] // 1024, disk["free_bytes"] // 1024
    used = total - free
    inodes = [] if is_posix else [404_167, free * 8, "0%"]
    words = [device, total, used, free, f"{-(-100 * used // (total or 1))}%", *inodes, mount_point]
    return " ".join(map(str, words)) + "\n"


def sw_vers(mac: Mac, call: Call) -> Result:
    """Print the name, version and build of macOS; options have one or two dashes."""
    settings = mac.state["settings"]
    values = {
        "ProductName": "macOS",
        "ProductVersion": settings["macos"],
        "BuildVersion": settings["build"],
    }
    if len(call.argv) == 1:
        return Result(out="".join(f"{name + ':':<16}\t{value}\n" for name, value in values.items()))
    requested = {f"-{name[0].lower()}{name[1:]}": value for name, value in values.items()}
    option = call.argv[1].replace("--", "-", 1)
    if len(call.argv) != 2 or option not in requested:
        return Result(
            _USAGE, err="Usage: sw_vers [--help|--productName|--productVersion|--buildVersion]\n"
        )
    return Result(out=f"{requested[option]}\n")


def uname(mac: Mac, call: Call) -> Result:
    """Print the kernel's name and release, the host's name or the architecture."""
    state = mac.state
    parts = {
        "s": "Darwin",
        "n": str(state["host_name"]),
        "r": f"{_darwin(state['settings']['macos'])}.0.0",
        "v": f"Darwin Kernel Version {_darwin(state['settings']['macos'])}.0.0",
        "m": str(state["settings"]["architecture"]),
        "p": "arm" if state["settings"]["architecture"] == "arm64" else "i386",
    }
    letters = "".join(word.removeprefix("-") for word in call.argv[1:]) or "s"
    if any(not word.startswith("-") for word in call.argv[1:]) or set(letters) - set("amnprsv"):
        return Result(_USAGE, err="usage: uname [-amnoprsv]\n")
    requested = "snrvm" if "a" in letters else letters
    return Result(out=" ".join(value for key, value in parts.items() if key in requested) + "\n")


def sysctl(mac: Mac, call: Call) -> Result:
    """Print values of the kernel; setting them is not modelled."""
    words = list(call.argv[1:])
    is_bare = words[:1] == ["-n"]
    names = words[1:] if is_bare else words
    if not names or any("=" in name or name.startswith("-") for name in names):
        return not_modelled(call)
    out, err = "", ""
    for name in names:
        value = _VALUES[name](mac) if name in _VALUES else None
        if value is None:
            err += f"sysctl: unknown oid '{name}'\n"
        else:
            out += f"{value}\n" if is_bare else f"{name}: {value}\n"
    return Result(1 if err else 0, out=out, err=err)


def _darwin(macos: str) -> int:
    major = int(macos.partition(".")[0])
    return major + (_OLD_LEAD if major <= _SEQUOIA else _NEW_LEAD)


def _setting(name: str) -> Callable[[Mac], Any]:
    return lambda mac: mac.state["settings"][name]


def _is_arm(mac: Mac) -> str | None:
    """Return 1 on Apple silicon; Intel Macs do not have the name."""
    return "1" if mac.state["settings"]["architecture"] == "arm64" else None


def _brand(mac: Mac) -> str:
    return "Apple M1" if _is_arm(mac) else "Intel(R) Core(TM) i7-8700B CPU @ 3.20GHz"


_VALUES: Mapping[str, Callable[[Mac], Any]] = {
    "hw.optional.arm64": _is_arm,
    "hw.memsize": _setting("memory_bytes"),
    "hw.ncpu": _setting("cpus"),
    "hw.physicalcpu": _setting("cpus"),
    "hw.logicalcpu": _setting("cpus"),
    "hw.model": _setting("model"),
    "hw.machine": _setting("architecture"),
    "kern.osproductversion": _setting("macos"),
    "kern.osversion": _setting("build"),
    "kern.hostname": lambda mac: mac.state["host_name"],
    "kern.boottime": lambda mac: f"{{ sec = {int(mac.state['boot']['started_at'])}, usec = 0 }}",
    "kern.bootsessionuuid": lambda mac: mac.state["boot"]["boot_id"],
    "machdep.cpu.brand_string": _brand,
}
