"""A guest: it gets an address, its agent runs commands, its script waits, works, reports into the status share and ends.

It runs in a separate process, or as a generator. Its script comes from its image, its VM's name and its Pod:
`BRAMLEY_SIM_<FIELD>=<JSON or text>` in the environment file of the env share changes a field. A script may make it hostile: it can
leave links and pipes where the host expects files. If the environment names a dispatch endpoint, the guest polls it for its job: see `poller`.
"""

import fnmatch
import json
import os
from collections.abc import Generator, Mapping
from typing import Any

from bramley.api.names import guest as names
from bramley.api.names import runners
from bramley.sim.tart import bundles, effects, layout, leases
from bramley.sim.tart.effects import Effect, Plan, Steps, Substeps
from bramley.sim.tart.settings import GUEST, Context, read_context

VARIABLE_PREFIX = "BRAMLEY_SIM_"
_ESCAPES: Mapping[str, str] = {"n": "\n", "r": "\r", "\\": "\\"}
_KIB_OF_DISK = 100_000_000
_MAX_FILE_BYTES = 1 << 20
TERMINATED = 143
FOREVER = float("inf")
DHCP_RETRY = 15.0
_ENDS: Mapping[str, int] = {
    "halt": effects.HALTED,
    "crash": effects.CRASHED,
    "disconnect": effects.DISCONNECTED,
}


class ShutDown(Exception):
    """A command in the guest requested a shutdown."""


class Guest:
    """The state of one guest from power on."""

    def __init__(self, plan: Plan, context: Context) -> None:
        self.plan = plan
        self.context = context
        self.bundle = layout.vm(context.home, plan.vm)
        self.started_at = context.now()
        disk = bundles.disk_content(self.bundle)
        self.script = initial_script(context, plan, disk)
        self.variables: dict[str, str] = {}
        self.address: str | None = None
        # When it sends its next DHCP request: the first, a retry, or the renewal of its lease.
        self.dhcp_due = self.stage_time("address") if self.script["has_address"] else FOREVER
        # Whether a shutdown is reported: while it works, and while it polls for work.
        self.is_working = False
        # Whether its poller is the image's script in a process.
        self.has_poller_process = False
        bundles.change_disk(self.bundle, boots=int(disk.get("boots", 0)) + 1)

    def stage_time(self, stage: str) -> float:
        """Return the time at which a stage of booting is reached."""
        seconds = self.script[stage]
        scale = self.context.settings.scale
        after = self.context.settings.timings[stage] if seconds is None else seconds
        return self.started_at + after * scale

    def duration(self, field: str) -> float:
        """Return the duration of a part of the script."""
        seconds = self.script[field]
        if seconds is None:
            return self.context.settings.seconds(field)
        return float(seconds) * self.context.settings.scale

    def serve_until(self, stage_time: float) -> Substeps:
        """Wait until a point in time, serve requests once the agent is up, and keep the lease of the address."""
        while stage_time > self.context.now():
            yield from self.serve_once(stage_time)

    def serve_once(self, stage_time: float) -> Substeps:
        """Wait like `serve_until`, but at most for one request, or for one event of the driver."""
        dhcp_in = self.dhcp_due - self.context.now()
        if dhcp_in <= 0:
            yield from self.request_address()
            return
        remaining = min(stage_time - self.context.now(), dhcp_in)
        silent_for = self._responsive_at() - self.context.now()
        if silent_for > 0:
            yield effects.Sleep(min(remaining, silent_for))
            return
        request = yield effects.Listen(min(remaining, self._seconds_to_silence()))
        if request is not None:
            result = run_command(self.script, request, self.address, self.plan)
            yield effects.Reply(request, result)
            if is_shutdown(request.argv) and not self.script["ignores_shutdown"]:
                raise ShutDown

    def request_address(self) -> Substeps:
        """Request an address, or the renewal of its lease, and plan the next request."""
        self.address = yield from leases.grant(self.context, self.plan.mac)
        renewal = max(leases.lease_seconds(self.context) / 2, 1.0)
        retry = DHCP_RETRY * self.context.settings.scale
        pause = retry if self.address is None else renewal
        self.dhcp_due = self.context.now() + pause

    def _responsive_at(self) -> float:
        """Return the time from which the agent responds; it may be past."""
        up = self.stage_time("agent") if self.script["has_agent"] else FOREVER
        begins, ends = self._silence()
        return max(up, ends) if begins <= self.context.now() else up

    def _seconds_to_silence(self) -> float:
        remaining = self._silence()[0] - self.context.now()
        return remaining if remaining > 0 else FOREVER

    def _silence(self) -> tuple[float, float]:
        """Return when the agent stops responding, and when it responds again."""
        after, duration = self.script["falls_silent"], self.script["silent_for"]
        if after is None:
            return FOREVER, FOREVER
        begins = self.started_at + after * self.context.settings.scale
        return begins, FOREVER if duration is None else begins + self.duration("silent_for")

    def pause(self, seconds: float) -> Substeps:
        """Wait for some seconds, and serve requests."""
        yield from self.serve_until(self.context.now() + seconds)


def run_guest(plan: Plan, process: effects.ProcessEnvironment) -> Steps:
    """Run a guest from power on to its end."""
    guest = Guest(plan, read_context(process))
    try:
        yield from _boot(guest)
        then: str = yield from _run_script(guest)
        if then == "stay":
            yield from guest.serve_until(FOREVER)
    except ShutDown:
        if guest.is_working:
            yield from _terminate(guest)
        yield effects.Sleep(guest.duration("halt"))
        return effects.HALTED
    if then == "halt":
        yield effects.Sleep(guest.duration("halt"))
    return _ENDS[then]


def _terminate(guest: Guest) -> Substeps:
    """End the work of a guest that shuts down; a poller that is a process reports by itself."""
    if guest.has_poller_process:
        yield effects.StopPoller()
        leave_plants(guest)
    else:
        report(guest, TERMINATED)


def _boot(guest: Guest) -> Substeps:
    yield from guest.serve_until(guest.stage_time("address"))
    if guest.script["has_address"]:
        yield from guest.request_address()
    yield from guest.serve_until(guest.stage_time("ready"))
    # The environment is read only now: the runner sees what the host wrote during the boot.
    guest.variables = read_environment(guest.plan)
    guest.script = apply_environment(guest.script, guest.variables)


def _run_script(guest: Guest) -> Generator[Effect, Any, str]:
    """Poll for a job, or work without polling, and return how the guest ends."""
    # Without a network a runner gets no job.
    while guest.script["has_address"] and guest.address is None:
        yield from guest.serve_until(guest.dhcp_due + 1)
    if runners.ENV_DISPATCH_URL not in guest.variables:
        yield from _work(guest)
        return str(guest.script["then"])
    if not (guest.script["polls"] and guest.script["has_address"]):
        return "stay"
    # Imported here: most guests do not poll, and `poller` imports this module.
    from bramley.sim.tart import poller

    guest.is_working = True
    had_job: bool = yield from poller.poll(guest)
    guest.is_working = False
    return str(guest.script["then"]) if had_job else "halt"


def _work(guest: Guest) -> Substeps:
    yield from guest.pause(guest.duration("wait"))
    guest.is_working = True
    yield from run_job(guest)
    if guest.script["code"] is not None:
        report(guest, guest.script["code"])
    guest.is_working = False


def run_job(guest: Guest) -> Substeps:
    """Print the lines of the job while it runs, and write to the disk."""
    lines = guest.script["lines"]
    for line in lines:
        write(guest, names.LOG_FILE, substitute(line, guest) + "\n", mode="a")
        yield from guest.pause(guest.duration("work") / len(lines))
    if not lines:
        yield from guest.pause(guest.duration("work"))
    grow_disk(guest)


def substitute(line: str, guest: Guest) -> str:
    """Fill `{NAME}` from the environment of the guest."""
    for name, value in {"HOSTNAME": guest.plan.vm, **guest.variables}.items():
        line = line.replace(f"{{{name}}}", value)
    return line


def grow_disk(guest: Guest) -> None:
    """Add what the job wrote to the blocks of the disk."""
    size = int(guest.script["writes_bytes"])
    if size:
        written = {guest.context.entropy(8).hex(): size}
        bundles.change_disk(guest.bundle, blocks=bundles.disk_blocks(guest.bundle) | written)


def report(guest: Guest, code: int) -> None:
    """Write the exit code into the status share."""
    write(guest, names.EXIT_CODE_FILE, f"{code}\n")
    leave_plants(guest)


def leave_plants(guest: Guest) -> None:
    """Create the files that a hostile guest leaves in the status share."""
    for file, kind in guest.script["plants"].items():
        _plant(guest, file, kind)


def status_share(guest: Guest) -> str | None:
    """Return the folder on the host that the guest reports into, or None."""
    share = guest.plan.shares.get(names.STATUS_SHARE)
    return None if share is None or share["read_only"] else str(share["path"])


def write(guest: Guest, file: str, text: str, *, mode: str = "w") -> None:
    """Write a file of the status share, if there is one."""
    folder = status_share(guest)
    if folder is None or not os.path.isdir(folder):
        return
    with open(os.path.join(folder, file), mode, encoding="utf-8") as opened:
        opened.write(text)


def _plant(guest: Guest, file: str, kind: str) -> None:
    folder = status_share(guest)
    if folder is None:
        return
    path = os.path.join(folder, file)
    if os.path.lexists(path):
        os.unlink(path)
    what, _, detail = kind.partition(":")
    if what == "link":
        os.symlink(detail, path)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        os.mkdir(path)
    else:
        with open(path, "wb") as opened:
            opened.write(b"x" * int(detail))


def initial_script(settings: Context, plan: Plan, disk: Mapping[str, Any]) -> dict[str, Any]:
    """Return the script that a guest starts with."""
    script = {**GUEST, **disk.get("facts", {}).get("guest", {})}
    for pattern, fields in settings.settings.guests.items():
        if fnmatch.fnmatchcase(plan.vm, pattern):
            script |= fields
    return script


def read_environment(plan: Plan) -> dict[str, str]:
    """Return the variables that the host wrote into the env share; empty without one."""
    share = plan.shares.get(names.ENV_SHARE)
    if share is None:
        return {}
    try:
        with open(os.path.join(share["path"], names.ENV_FILE), encoding="utf-8") as file:
            lines = file.read(_MAX_FILE_BYTES).splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key: _unescaped(value) for key, _, value in pairs}


def _unescaped(text: str) -> str:
    """Undo the two-character escapes of the environment file."""
    read, rest = "", text
    while "\\" in rest:
        before, _, rest = rest.partition("\\")
        read += before + _ESCAPES.get(rest[:1], "\\" + rest[:1])
        rest = rest[1:]
    return read + rest


def apply_environment(script: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the script with the changes of the environment; unknown fields are ignored."""
    changed = dict(script)
    for field in script:
        text = variables.get(VARIABLE_PREFIX + field.upper())
        if text is not None:
            changed[field] = _value(text)
    return changed


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_shutdown(argv: tuple[str, ...]) -> bool:
    """Return whether a command shuts the guest down."""
    return any(_program_name(each) in {"shutdown", "halt", "poweroff"} for each in argv[:3])


def _program_name(path: str) -> str:
    return path.rpartition("/")[2]


def run_command(
    script: Mapping[str, Any], request: effects.Request, address: str | None, plan: Plan
) -> effects.CommandResult:
    """Run a command."""
    argv = request.argv
    if (response := script["commands"].get(" ".join(argv))) is not None:
        return effects.CommandResult(
            **{"code": 0, "stdout": "", "stderr": "", "seconds": 0.0, **response}
        )
    if is_shutdown(argv):
        return _ok("")
    match _program_name(argv[0]), list(argv[1:]):
        case "df", _:
            return _ok(_df(script["disk_percent"]))
        case "address", []:
            return _ok(address or "")
        case "hostname", []:
            return _ok(f"{plan.vm}\n")
        case "cat", [path]:
            return _cat(path, plan)
        case _:
            return _run_shell_command(request)


def _run_shell_command(request: effects.Request) -> effects.CommandResult:
    match _program_name(request.argv[0]), list(request.argv[1:]):
        case ("true" | "false") as word, _:
            return effects.CommandResult(0 if word == "true" else 1, "", "", 0.0)
        case "echo", words:
            return _ok(" ".join(words) + "\n")
        case "cat", []:
            return _ok(request.stdin)
        case "sleep", [seconds]:
            return effects.CommandResult(0, "", "", float(seconds))
        case "sh", ["-c", command] if command.startswith("exit "):
            return effects.CommandResult(int(command.split()[1]), "", "", 0.0)
        case name, _:
            return effects.CommandResult(127, "", f"{name}: command not found\n", 0.0)


def _ok(stdout: str) -> effects.CommandResult:
    return effects.CommandResult(0, stdout, "", 0.0)


def _df(percent: float) -> str:
    """Return macOS' table: the capacity column comes before that of inodes."""
    used = int(_KIB_OF_DISK * percent / 100)
    return (
        "Filesystem 1024-blocks     Used Available Capacity iused ifree %iused  Mounted on\n"
        f"/dev/disk3s1s1 {_KIB_OF_DISK} {used} {_KIB_OF_DISK - used} {percent:g}% 425798 9999999 4% /\n"
    )


def _cat(path: str, plan: Plan) -> effects.CommandResult:
    """Read a file of a share; a simulated guest has no others."""
    share, _, file = path.removeprefix(names.SHARES_ROOT + "/").partition("/")
    if path.startswith(names.SHARES_ROOT) and share in plan.shares:
        try:
            with open(os.path.join(plan.shares[share]["path"], file), encoding="utf-8") as opened:
                return _ok(opened.read(_MAX_FILE_BYTES))
        except OSError:
            return effects.CommandResult(1, "", f"cat: {path}: No such file or directory\n", 0.0)
    return effects.CommandResult(1, "", f"cat: {path}: No such file or directory\n", 0.0)
