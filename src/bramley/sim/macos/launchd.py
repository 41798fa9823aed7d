"""launchd of a simulated Mac: its domains, the jobs that are loaded into them, and KeepAlive.

A job is identified by its target, `system/<label>` or `gui/<uid>/<label>`. The domain `gui/<uid>` exists only while that user is
logged in at the console. A `Spawner` runs the processes. Calendars, watched paths and sockets are not modelled; the command line is
in `programs/launchctl.py`.
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


# EX_CONFIG, the exit code of a job whose program does not exist.
NO_PROGRAM = 78
WITH_MACOS = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/libexec/", "/System/")
SYSTEM = "system"
LOGINWINDOW = "com.apple.loginwindow"
DAEMONS = ("/System/Library/LaunchDaemons", "/Library/LaunchDaemons")
THROTTLE_SECONDS = 10
# launchctl's error numbers.
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


# A job in the state, see `read_job`.
Job = dict[str, Any]


class RefusedByLaunchd(Exception):
    """An error of launchd."""

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
    """Return a loaded job, or None."""
    job: Job | None = state["launchd"]["jobs"].get(target)
    return job


def pid_of(state: Mapping[str, Any], label: str, domain: str = SYSTEM) -> int | None:
    """Return the process of a job; None if it does not run."""
    job = find(state, f"{domain}/{label}")
    return None if job is None else job.get("pid")


def has_domain(state: Mapping[str, Any], domain: str) -> bool:
    """Return whether a domain exists now: a user's `gui` domain exists during the session at the console."""
    kind, _, uid = domain.partition("/")
    if kind == SYSTEM:
        return not uid
    name = users.name_of(state, int(uid)) if uid.isdigit() else None
    return name is not None and (kind == "user" or state["console"]["user"] == name)


def load(mac: Mac, state: dict[str, Any], domain: str, path: str) -> str:
    """Load a job from its property list, start it if it has RunAtLoad or KeepAlive, and return its target."""
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
    """Return the job of a property list; launchd accepts none that others may write."""
    content = mac.files.read(path)
    if content is None:
        raise RefusedByLaunchd(INPUT_OUTPUT)
    is_safe = mac.files.mode(path) & 0o022 == 0
    if not is_safe or (domain == SYSTEM and not mac.files.owner(path).startswith("root:")):
        raise RefusedByLaunchd(BAD_OWNER)
    try:
        plist = plutil.read(content)
    except plutil.InvalidPropertyList as error:
        raise RefusedByLaunchd(NOT_A_LIST) from error
    if not isinstance(plist, dict) or not plist.get("Label"):
        raise RefusedByLaunchd(NOT_A_LIST)
    return _job(plist, path)


def _job(plist: dict[str, Any], path: str) -> Job:
    program = plist.get("Program")
    return {
        "label": plist["Label"],
        "path": path,
        "arguments": plist.get("ProgramArguments") or [program or ""],
        "program": program or "",
        "user": plist.get("UserName", ""),
        "environment": plist.get("EnvironmentVariables", {}),
        "folder": plist.get("WorkingDirectory", "/"),
        "out": plist.get("StandardOutPath", "/dev/null"),
        "err": plist.get("StandardErrorPath", "/dev/null"),
        "run_at_load": bool(plist.get("RunAtLoad", False)),
        # Or a dictionary of conditions, of which only SuccessfulExit is modelled.
        "keep_alive": plist.get("KeepAlive", False),
        "throttle": int(plist.get("ThrottleInterval", THROTTLE_SECONDS)),
        "interval": int(plist.get("StartInterval", 0)),
        "runs_count": 0,
    }


def unload(mac: Mac, state: dict[str, Any], target: str) -> None:
    """Stop a job and remove it; its label is in use until the process is gone."""
    job = find(state, target)
    if job is None or "gone_at" in job:
        raise RefusedByLaunchd(NO_PROCESS)
    exit_seconds = state["settings"]["bootout_seconds"] if "pid" in job else 0.0
    stop(mac, state, target)
    if exit_seconds:
        job["gone_at"] = mac.now() + exit_seconds
    else:
        del state["launchd"]["jobs"][target]


def start(mac: Mac, state: dict[str, Any], target: str) -> None:
    """Start a job's program, which may exit at once."""
    job = state["launchd"]["jobs"][target]
    job.pop("start_at", None)
    job["runs_count"] += 1
    job["started_at"] = mac.now()
    if job["interval"]:
        job["start_at"] = mac.now() + job["interval"]
    started = mac.spawner.start(mac, state, target)
    if isinstance(started, Exited):
        on_exit(mac, state, target, started.code)
    else:
        job["pid"] = started


def stop(mac: Mac, state: dict[str, Any], target: str) -> None:
    """Stop a job's process, if there is one, without restarting it."""
    job = state["launchd"]["jobs"][target]
    job.pop("start_at", None)
    pid = job.pop("pid", None)
    if pid is not None:
        mac.spawner.stop(mac, pid)


def restart(mac: Mac, state: dict[str, Any], target: str) -> None:
    """Restart a job, whether or not it runs."""
    if find(state, target) is None:
        raise RefusedByLaunchd(NO_SERVICE)
    stop(mac, state, target)
    start(mac, state, target)


def on_exit(mac: Mac, state: dict[str, Any], target: str, code: int) -> None:
    """Record that a job's process has exited; with KeepAlive it is restarted, but not before its ThrottleInterval."""
    job = find(state, target)
    if job is None:
        return
    job.pop("pid", None)
    job["last_exit"] = code
    if _is_kept_alive(job, code):
        job["start_at"] = max(mac.now(), job["started_at"] + job["throttle"])


def _is_kept_alive(job: Job, code: int) -> bool:
    condition = job["keep_alive"]
    if isinstance(condition, dict) and "SuccessfulExit" in condition:
        return bool(condition["SuccessfulExit"]) == (code == 0)
    return bool(condition)


def hang_up(mac: Mac, state: dict[str, Any], target: str) -> None:
    """End a job by SIGHUP: loginwindow, which is bound to the console, is not restarted, others are."""
    job = state["launchd"]["jobs"][target]
    mac.spawner.stop(mac, job["pid"])
    on_exit(mac, state, target, 1)
    if job["label"] == LOGINWINDOW:
        job.pop("start_at", None)


def end_domain(mac: Mac, state: dict[str, Any], domain: str) -> None:
    """Stop and remove all jobs of a domain."""
    for target, _ in list(jobs(state, domain)):
        stop(mac, state, target)
        del state["launchd"]["jobs"][target]


def load_folder(mac: Mac, state: dict[str, Any], domain: str, folder: str) -> None:
    """Load every job of a folder; launchd only logs those that it rejects."""
    for name in mac.files.names(folder):
        if name.endswith(".plist"):
            try:
                load(mac, state, domain, f"{folder}/{name}")
            except RefusedByLaunchd:
                continue


def next_event_at(state: Mapping[str, Any]) -> float:
    """Return when the next job is to be started or removed."""
    return min((_next_event(job) for job in state["launchd"]["jobs"].values()), default=inf)


def _next_event(job: Job) -> float:
    # A job that still runs is not started again, even if it is due.
    start_at = inf if "pid" in job else job.get("start_at", inf)
    return float(min(start_at, job.get("gone_at", inf)))


def run_due_events(mac: Mac, state: dict[str, Any]) -> None:
    """Start the jobs that are due, and remove those whose process is gone."""
    now = mac.now()
    for target, job in list(state["launchd"]["jobs"].items()):
        if job.get("gone_at", inf) <= now:
            del state["launchd"]["jobs"][target]
        elif job.get("start_at", inf) <= now and "pid" not in job:
            start(mac, state, target)


@dataclass(frozen=True, slots=True)
class Exited:
    """A program that has exited already."""

    code: int


class Spawner(Protocol):
    """Runs the programs of jobs; both methods are called within a change of the Mac's state."""

    def start(self, mac: Mac, state: dict[str, Any], target: str) -> int | Exited:
        """Start a job's program and return its process id; the spawner calls launchd.on_exit when it exits."""
        ...

    def stop(self, mac: Mac, pid: int) -> None:
        """Stop a process; launchd.on_exit is not called."""
        ...


class FakeSpawner:
    """Gives jobs with KeepAlive a process id only; other programs of the model run to their end at once."""

    def start(self, mac: Mac, state: dict[str, Any], target: str) -> int | Exited:
        """Return a process id, or run the program."""
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
        """Do nothing: there is no process."""
        del mac, pid
