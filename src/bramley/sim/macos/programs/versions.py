"""What a Mac is: sw_vers, uname, sysctl and arch, from its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import refusing

_USAGE = 1
# Darwin counted five more than macOS did up to 15; since 26 one less.
_SEQUOIA, _OLD_LEAD, _NEW_LEAD = 15, 9, -1


def sw_vers(mac: Mac, call: Call) -> Said:
    """Tell the name, version and build of macOS, in options of one or of two dashes."""
    settings = mac.state["settings"]
    said = {
        "ProductName": "macOS",
        "ProductVersion": settings["macos"],
        "BuildVersion": settings["build"],
    }
    if len(call.argv) == 1:
        return Said(out="".join(f"{name + ':':<16}\t{value}\n" for name, value in said.items()))
    asked = {f"-{name[0].lower()}{name[1:]}": value for name, value in said.items()}
    option = call.argv[1].replace("--", "-", 1)
    if len(call.argv) != 2 or option not in asked:
        return Said(
            _USAGE, err="Usage: sw_vers [--help|--productName|--productVersion|--buildVersion]\n"
        )
    return Said(out=f"{asked[option]}\n")


def uname(mac: Mac, call: Call) -> Said:
    """Tell the kernel's name, the host's, the release or the machine."""
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
        return Said(_USAGE, err="usage: uname [-amnoprsv]\n")
    asked = "snrvm" if "a" in letters else letters
    return Said(out=" ".join(value for key, value in parts.items() if key in asked) + "\n")


def arch(mac: Mac, call: Call) -> Said:
    """Tell the architecture; running a program for another one is not modelled."""
    if len(call.argv) > 1:
        return refusing.not_modelled(call)
    return Said(out=f"{mac.state['settings']['architecture']}\n")


def sysctl(mac: Mac, call: Call) -> Said:
    """Tell values of the kernel; setting them is not modelled."""
    words = list(call.argv[1:])
    is_bare = words[:1] == ["-n"]
    names = words[1:] if is_bare else words
    if not names or any("=" in name or name.startswith("-") for name in names):
        return refusing.not_modelled(call)
    out, err = "", ""
    for name in names:
        value = _VALUES[name](mac) if name in _VALUES else None
        if value is None:
            err += f"sysctl: unknown oid '{name}'\n"
        else:
            out += f"{value}\n" if is_bare else f"{name}: {value}\n"
    return Said(1 if err else 0, out=out, err=err)


def _darwin(macos: str) -> int:
    major = int(macos.partition(".")[0])
    return major + (_OLD_LEAD if major <= _SEQUOIA else _NEW_LEAD)


def _setting(name: str) -> Callable[[Mac], Any]:
    return lambda mac: mac.state["settings"][name]


def _is_arm(mac: Mac) -> str | None:
    """Return 1 on Apple silicon; Macs before it do not know the name."""
    return "1" if mac.state["settings"]["architecture"] == "arm64" else None


def _boot_time(mac: Mac) -> str:
    return f"{{ sec = {int(mac.state['boot']['started_at'])}, usec = 0 }}"


def _boot_session(mac: Mac) -> str:
    return str(mac.state["boot"]["boot_id"])


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
    "kern.boottime": _boot_time,
    "kern.bootsessionuuid": _boot_session,
    "machdep.cpu.brand_string": _brand,
}
