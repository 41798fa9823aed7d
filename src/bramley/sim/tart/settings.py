"""The settings of the simulated tart: version, timings, disk, registry, guests and faults, read by every call.

The file is `$BRAMLEY_SIM_TART` or `$TART_HOME/sim.json`; it may change at any time, and without it everything has its default.
An unknown key is an error: a misspelt fault would let a test pass for no reason.
"""

import fnmatch
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bramley.sim.tart.effects import ProcessEnvironment, Sleep, Substeps
from bramley.sim.tart.failures import Failed

FILE_VARIABLE = "BRAMLEY_SIM_TART"

# Seconds as measured on fleets; sizes in bytes per second.
TIMINGS: Mapping[str, float] = {
    "query": 0.03,
    "manifest": 0.3,
    "clone": 0.5,
    "set": 0.05,
    "delete": 0.1,
    "start": 1.0,
    "address": 9.0,
    "agent": 10.0,
    "ready": 32.0,
    "poll": 2.0,
    "halt": 3.0,
    "stop": 0.5,
    "snapshot": 2.0,
    "bytes_per_second": 125e6,
    "stream_bytes_per_second": 29e6,
    "push_bytes_per_second": 140e6,
    "push_stream_bytes_per_second": 17.6e6,
}
HOST: Mapping[str, Any] = {
    "disk_bytes": None,  # None: what the real volume has
    "other_bytes": 0,
    "has_session": True,
    "macos_guests": 2,
    "leaked_slots": 0,
    "subnet": "192.168.64",
    "lease_seconds": 86400,
    "leases": None,  # the lease file; None: in the folder of the simulation
}
IMAGE: Mapping[str, Any] = {
    "digest": None,
    "os": "darwin",
    "disk_bytes": 50_000_000_000,
    "size_bytes": 20_000_000_000,
    "compressed_bytes": None,  # None: half of size_bytes
    "cpu": 4,
    "memory_mb": 8192,
    "cpu_min": 2,
    "memory_min_mb": 2048,
    "base": None,  # another image, the first chunks of which are the same
    "shared_bytes": 0,
    "format": "v2",
    "needs_login": False,
    "is_too_new": False,
    "guest": {},
}
GUEST: Mapping[str, Any] = {
    "address": None,  # seconds from power on; None: as in timings
    "agent": None,
    "ready": None,
    "polls": True,  # whether it polls the dispatch endpoint that its environment names; False: a bad image
    "long_poll": 50,  # seconds for which the endpoint may hold a poll; 0 for short polls only
    "wait": 0.0,
    "work": 60.0,
    "lines": ["job started on {HOSTNAME}", "job ended"],
    "code": 0,  # None: ends without a report
    "halt": None,
    "then": "halt",  # halt, stay, crash or disconnect
    "writes_bytes": 0,
    "disk_percent": 40,
    "has_agent": True,
    "has_address": True,
    "ignores_shutdown": False,
    "falls_silent": None,  # seconds from power on; from then on its agent does not respond, while its job continues
    "silent_for": None,  # seconds; None: for ever
    "commands": {},  # command line -> {"code": …, "stdout": …, "stderr": …, "seconds": …}
    "plants": {},  # file in the status share -> "link:<to>", "fifo", "folder" or "bytes:<count>": what a hostile guest leaves
}
TOP: Mapping[str, Any] = {
    "version": "2.32.1",
    "scale": 1.0,  # every duration of the simulation is multiplied by it
    "clone_overwrites": True,
    "site": None,  # a folder shared by the Macs behind one uplink
    "registry": None,  # a folder for pushed images; None: in the folder of the simulation
    "timings": {},
    "host": {},
    "images": {},
    "guests": {},  # VM name, or pattern -> script of its guest, over that of its image
    "faults": [],
}
ANY_FAULTS = frozenset({"hang", "slow", "fail"})
FAULTS: Mapping[str, frozenset[str]] = {
    "pull": frozenset({"no_space", "stall", "status", "reset"}),
    "push": frozenset({"stall", "status", "reset"}),
    "clone": frozenset({"no_space", "half", "stall", "status", "reset"}),
    "set": frozenset({"no_space"}),
    "run": frozenset(
        {"no_session", "nvram_locked", "limit", "outlives", "ignores_stop", "softnet_died"}
    ),
    "list": frozenset({"state"}),
    "get": frozenset({"state"}),
    "exec": frozenset({"no_agent"}),
}
FAULT_TIMES = frozenset({"start", "end"})
# With some of the work done: `clone` holds the lock of TART_HOME, `delete` has removed config.json.
WITH_MIDDLE = frozenset({"clone", "delete"})


class BadSettings(Exception):
    """The settings file is invalid."""


class Fault(NamedTuple):
    """One fault: `do` it when command `on` handles a `target`, at most `times` times."""

    on: str = ""
    do: str = ""
    target: str = "*"
    at: str = "start"
    seconds: float = 0.0
    code: int = 1
    stderr: str = ""
    times: int | None = None
    id: str = ""
    percent: float = 50
    value: str = ""


class Settings(NamedTuple):
    """The whole file with every default filled in."""

    version: str
    scale: float
    clone_overwrites: bool
    site: str | None
    registry: str
    timings: Mapping[str, float]
    host: Mapping[str, Any]
    images: Mapping[str, Mapping[str, Any]]
    guests: Mapping[str, Mapping[str, Any]]
    faults: tuple[Fault, ...]

    def seconds(self, timing: str) -> float:
        """Return the scaled duration of a timing."""
        return self.timings[timing] * self.scale

    def is_at_least(self, version: str) -> bool:
        """Return whether the simulated release is this one or newer."""
        return _numbers(self.version) >= _numbers(version)


def load(home: str, environment: Mapping[str, str]) -> Settings:
    """Read the file of this simulated Mac."""
    path = environment.get(FILE_VARIABLE) or os.path.join(home, "sim.json")
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        content = {}
    except ValueError as error:
        raise BadSettings(f"{path}: {error}") from error
    try:
        return read(content, home)
    except BadSettings as error:
        raise BadSettings(f"{path}: {error}") from error


def read(content: Any, home: str) -> Settings:
    """Fill in the defaults and reject unknown keys."""
    top = _complete(content, TOP, "the file")
    images = {
        name: _complete(facts, IMAGE, f"image {name}") for name, facts in top["images"].items()
    }
    for name, image in images.items():
        _complete(image["guest"], GUEST, f"guest of image {name}")
    for name, script in top["guests"].items():
        _complete(script, GUEST, f"guest {name}")
    filled = {
        "registry": top["registry"] or os.path.join(home, ".sim", "registry"),
        "timings": _complete(top["timings"], TIMINGS, "timings"),
        "host": _complete(top["host"], HOST, "host"),
        "images": images,
        "faults": tuple(_fault(each, index) for index, each in enumerate(top["faults"])),
    }
    return Settings(**{**top, **filled})


def _complete(content: Any, defaults: Mapping[str, Any], subject: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise BadSettings(f"{subject}: not a JSON object")
    if unknown := set(content) - set(defaults):
        raise BadSettings(f"{subject}: unknown key {', '.join(sorted(unknown))}")
    return {**defaults, **content}


def _fault(content: Any, index: int) -> Fault:
    filled = _complete(content, Fault._field_defaults, f"fault {index}")
    filled["id"] = filled["id"] or f"{index}-{filled['on']}-{filled['do']}"
    fault = Fault(**filled)
    supported = ANY_FAULTS | FAULTS.get(fault.on, frozenset())
    times = FAULT_TIMES | {"middle"} if fault.on in WITH_MIDDLE else FAULT_TIMES
    if fault.do not in supported or fault.at not in times:
        raise BadSettings(f"fault {index}: tart {fault.on} cannot {fault.do} at {fault.at}")
    return fault


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


class Context(NamedTuple):
    """What one command or guest works with: its process, the settings of its Mac, and its faults."""

    home: str  # TART_HOME
    environment: Mapping[str, str]
    now: Callable[[], float]  # seconds since the epoch
    entropy: Callable[[int], bytes]
    settings: Settings

    @property
    def hidden(self) -> str:
        """Return the folder of what a real Mac stores elsewhere: leases, slots, fault counters, registry."""
        return os.path.join(self.home, ".sim")

    @property
    def is_plain(self) -> bool:
        """Return whether progress is appended instead of redrawn."""
        return "CI" in self.environment

    def fault(self, on: str, target: str, *kinds: str, at: str = "start") -> Fault | None:
        """Return the first fault that applies here, and count its use."""
        for fault in self.settings.faults:
            if fault.do in kinds and fault.at == at and self.applies(fault, on, target):
                return fault
        return None

    def applies(self, fault: Fault, on: str, target: str) -> bool:
        """Return whether a fault applies to this command and target, and count its use."""
        if fault.on != on or not fnmatch.fnmatchcase(target, fault.target):
            return False
        return fault.times is None or self._count_use(fault) <= fault.times

    def _count_use(self, fault: Fault) -> int:
        folder = os.path.join(self.hidden, "spent")
        os.makedirs(folder, exist_ok=True)
        # The length after an append is different for each of several processes: it is their number.
        with open(os.path.join(folder, fault.id.replace("/", "_")), "ab") as file:
            file.write(b".")
            file.flush()
            return file.tell()


def read_context(process: ProcessEnvironment) -> Context:
    """Read the settings and return the context of one process."""
    return Context(*process, settings=load(process.home, process.environment))


def apply_faults(context: Context, verb: str, target: str, at: str) -> Substeps:
    """Delay, hang or fail according to the faults: before the work, after it was done, or in the middle of it."""
    if slow := context.fault(verb, target, "slow", at=at):
        yield Sleep(slow.seconds)
    if context.fault(verb, target, "hang", at=at):
        yield Sleep(float("inf"))
    if failure := context.fault(verb, target, "fail", at=at):
        raise Failed(failure.code, failure.stderr)
