"""launchd of a simulated Mac: its domains, the jobs that are loaded into them, and what keeps these alive.

A job is known by its target, `system/<label>` or `gui/<uid>/<label>`. The domain `gui/<uid>` is there only while that user is
logged in at the console. Processes are a `Spawner`'s matter. Calendars, watched paths and sockets start nothing here; answering on a command line is that of `programs/launchctl.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from bramley.sim.macos import programs, users
from bramley.sim.macos.call import Call
from bramley.sim.macos.programs import plutil

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


# EX_CONFIG, which launchd tells of a job whose program is not there.
NO_PROGRAM = 78
WITH_MACOS = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/libexec/", "/System/")
SYSTEM = "system"
LOGINWINDOW = "com.apple.loginwindow"
DAEMONS = ("/System/Library/LaunchDaemons", "/Library/LaunchDaemons")
THROTTLE_SECONDS = 10
# What launchctl names them, by its own numbers.
NOT_PERMITTED, NO_PROCESS, INPUT_OUTPUT, NOT_A_LIST = 1, 3, 5, 109
NO_DOMAIN, NO_SERVICE, DISABLED, BAD_OWNER, UNSUPPORTED = 112, 113, 119, 122, 125
MESSAGES = {
    NOT_PERMITTED: "Operation not permitted",
    NO_PROCESS: "No such process",
    INPUT_OUTPUT: "Input/output error",
    NOT_A_LIST: "Invalid property list",
    NO_DOMAIN: "Could not find specified domain",
    NO_SERVICE: "Could not find specified service",
    DISABLED: "Service is disabled",
    BAD_OWNER: "Path had bad ownership/permissions",
    UNSUPPORTED: "Domain does not support specified action",
}


# As launchd keeps it in the state, see launchd.read_job.
Job = dict[str, Any]


class RefusedByLaunchd(Exception):
    """What launchd answers instead of doing it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code}: {MESSAGES[code]}")
        self.code = code


def jobs(state: Mapping[str, Any], domain: str = SYSTEM) -> Iterator[tuple[str, Job]]:
    """Yield the targets and jobs of a domain, in order."""
    for target, job in sorted(state["launchd"]["jobs"].items()):
        if domain_of(target) == domain:
            yield target, job


def domain_of(target: str) -> str:
    """Return the domain of a job's target."""
    return target.rpartition("/")[0]


def find(state: Mapping[str, Any], target: str) -> Job | None:
    """Return a loaded job; None if there is none."""
    found: Job | None = state["launchd"]["jobs"].get(target)
    return found


def pid_of(state: Mapping[str, Any], label: str, domain: str = SYSTEM) -> int | None:
    """Return the process of a job; None if it does not run."""
    job = find(state, f"{domain}/{label}")
    return None if job is None else job.get("pid")


def has_domain(state: Mapping[str, Any], domain: str) -> bool:
    """Return whether there is such a domain now: a user's graphical one comes and goes with the session at the console."""
    kind, _, uid = domain.partition("/")
    if kind == SYSTEM:
        return not uid
    name = users.name_of(state, int(uid)) if uid.isdigit() else None
    return name is not None and (kind == "user" or state["console"]["user"] == name)


def load(mac: Mac, state: dict[str, Any], domain: str, path: str) -> str:
    """Load a job from its property list, start it if it wants that, and return its target."""
    if not has_domain(state, domain):
        raise RefusedByLaunchd(UNSUPPORTED)
    job = read_job(mac, path, domain=domain)
    target = f"{domain}/{job['label']}"
    if state["launchd"]["disabled"].get(target):
        raise RefusedByLaunchd(DISABLED)
    if find(state, target) is not None:
        raise RefusedByLaunchd(INPUT_OUTPUT)
    state["launchd"]["jobs"][target] = job
    if job["run_at_load"] or job["keep_alive"]:
        start(mac, state, target)
    return target


def read_job(mac: Mac, path: str, *, domain: str = SYSTEM) -> Job:
    """Return the job that a property list describes; launchd takes none that others could write."""
    content = mac.files.read(path)
    if content is None:
        raise RefusedByLaunchd(INPUT_OUTPUT)
    is_safe = mac.files.mode(path) & 0o022 == 0
    if not is_safe or (domain == SYSTEM and not mac.files.owner(path).startswith("root:")):
        raise RefusedByLaunchd(BAD_OWNER)
    try:
        given = plutil.read(content)
    except plutil.NoPropertyList as error:
        raise RefusedByLaunchd(NOT_A_LIST) from error
    if not isinstance(given, dict) or not given.get("Label"):
        raise RefusedByLaunchd(NOT_A_LIST)
    return _job(given, path)


def _job(given: dict[str, Any], path: str) -> Job:
    program = given.get("Program")
    return {
        "label": given["Label"],
        "path": path,
        "arguments": given.get("ProgramArguments") or [program or ""],
        "program": program or "",
        "user": given.get("UserName", ""),
        "environment": given.get("EnvironmentVariables", {}),
        "folder": given.get("WorkingDirectory", "/"),
        "out": given.get("StandardOutPath", "/dev/null"),
        "err": given.get("StandardErrorPath", "/dev/null"),
        "run_at_load": bool(given.get("RunAtLoad", False)),
        # Or a dictionary of conditions, of which only that of the exit code means something here.
        "keep_alive": given.get("KeepAlive", False),
        "throttle": int(given.get("ThrottleInterval", THROTTLE_SECONDS)),
        "interval": int(given.get("StartInterval", 0)),
        "runs_count": 0,
    }


def unload(mac: Mac, state: dict[str, Any], target: str) -> None:
    """End a job and forget it; its label is taken until the process has gone."""
    job = find(state, target)
    if job is None or "gone_at" in job:
        raise RefusedByLaunchd(NO_PROCESS)
    lingers = state["settings"]["bootout_seconds"] if "pid" in job else 0.0
    stop(mac, state, target)
    if lingers:
        job["gone_at"] = mac.now() + lingers
    else:
        del state["launchd"]["jobs"][target]


def start(mac: Mac, state: dict[str, Any], target: str) -> None:
    """Start a job's program, which may end at once."""
    job = state["launchd"]["jobs"][target]
    job.pop("start_at", None)
    job["runs_count"] += 1
    job["started_at"] = mac.now()
    if job["interval"]:
        job["start_at"] = mac.now() + job["interval"]
    started = mac.spawner.start(mac, state, target)
    if isinstance(started, Exited):
        ended(mac, state, target, started.code)
    else:
        job["pid"] = started


def stop(mac: Mac, state: dict[str, Any], target: str) -> None:
    """End a job's process, if there is one, and do not start it again by itself."""
    job = state["launchd"]["jobs"][target]
    job.pop("start_at", None)
    pid = job.pop("pid", None)
    if pid is not None:
        mac.spawner.stop(mac, pid)


def restart(mac: Mac, state: dict[str, Any], target: str) -> None:
    """Start a job anew, whether it runs or not."""
    if find(state, target) is None:
        raise RefusedByLaunchd(NO_SERVICE)
    stop(mac, state, target)
    start(mac, state, target)


def ended(mac: Mac, state: dict[str, Any], target: str, code: int) -> None:
    """Take note that a job's process has ended by itself; one that is kept alive comes back, but not sooner than its throttle has it."""
    job = find(state, target)
    if job is None:
        return
    job.pop("pid", None)
    job["last_exit"] = code
    if _comes_back(job, code):
        job["start_at"] = max(mac.now(), job["started_at"] + job["throttle"])


def _comes_back(job: Job, code: int) -> bool:
    condition = job["keep_alive"]
    if isinstance(condition, dict) and "SuccessfulExit" in condition:
        return bool(condition["SuccessfulExit"]) == (code == 0)
    return bool(condition)


def hang_up(mac: Mac, state: dict[str, Any], target: str) -> None:
    """Let SIGHUP end a job: a daemon that is bound to the console does not come back from it, others do."""
    job = state["launchd"]["jobs"][target]
    mac.spawner.stop(mac, job["pid"])
    ended(mac, state, target, 1)
    if job["label"] == LOGINWINDOW:
        job.pop("start_at", None)


def end_domain(mac: Mac, state: dict[str, Any], domain: str) -> None:
    """End and forget all jobs of a domain."""
    for target, _ in list(jobs(state, domain)):
        stop(mac, state, target)
        del state["launchd"]["jobs"][target]


def load_folder(mac: Mac, state: dict[str, Any], domain: str, folder: str) -> None:
    """Load every job of a folder that can be; launchd only logs what it refuses."""
    for name in mac.files.names(folder):
        if name.endswith(".plist"):
            try:
                load(mac, state, domain, f"{folder}/{name}")
            except RefusedByLaunchd:
                continue


def moment(state: Mapping[str, Any]) -> float:
    """Return when the next job is to be started, or will have gone."""
    return min((_moment(job) for job in state["launchd"]["jobs"].values()), default=inf)


def _moment(job: Job) -> float:
    # One that still runs is not started again, however long it has been due.
    start_at = inf if "pid" in job else job.get("start_at", inf)
    return float(min(start_at, job.get("gone_at", inf)))


def settle(mac: Mac, state: dict[str, Any]) -> None:
    """Start what is due, and forget what has gone."""
    now = mac.now()
    for target, job in list(state["launchd"]["jobs"].items()):
        if job.get("gone_at", inf) <= now:
            del state["launchd"]["jobs"][target]
        elif job.get("start_at", inf) <= now and "pid" not in job:
            start(mac, state, target)


@dataclass(frozen=True, slots=True)
class Exited:
    """A program that has ended already."""

    code: int


class Spawner(Protocol):
    """Runs programs of jobs; both are called within a change of the Mac's state."""

    def start(self, mac: Mac, state: dict[str, Any], target: str) -> int | Exited:
        """Start a job's program and return its process id; of its end, launchd.ended is told later."""
        ...

    def stop(self, mac: Mac, pid: int) -> None:
        """End a process; launchd.ended is not told of that."""
        ...


class FakeSpawner:
    """Gives jobs that are kept alive a process id; what others start, if it is a program of the Mac, runs to its end at once."""

    def start(self, mac: Mac, state: dict[str, Any], target: str) -> int | Exited:
        """Pretend that a program runs, or run it."""
        job = state["launchd"]["jobs"][target]
        if job["label"] in state["launchd"]["crashing"]:
            return Exited(state["launchd"]["crashing"][job["label"]])
        program = job["program"] or job["arguments"][0]
        if not program.startswith(WITH_MACOS) and not mac.files.is_executable(program):
            return Exited(NO_PROGRAM)
        if job["keep_alive"] or programs.find(program.rpartition("/")[2]) is None:
            state["launchd"]["last_pid_count"] += 1
            return int(state["launchd"]["last_pid_count"])
        return Exited(mac.run(Call(tuple(job["arguments"]), job["user"] or "root")).code)

    def stop(self, mac: Mac, pid: int) -> None:
        """Pretend no longer."""
        del mac, pid
