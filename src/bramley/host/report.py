"""Output for people: an overview of a Mac's facts, and a plan as descriptions of commands and diffs of files.

Nothing is decided from an overview; steps have their own probes. Secrets and binary content are not shown.
"""

from __future__ import annotations

import difflib
import functools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bramley.api.names import host, launchd
from bramley.base.secret import HIDDEN, Secret
from bramley.host import drift, launch_daemon, loginwindow, shared_probes
from bramley.host.commands import (
    Command,
    Folder,
    Link,
    Probe,
    Reboot,
    Remove,
    Rename,
    Run,
    RunProbe,
    Seal,
    Stream,
    Wait,
    Write,
)
from bramley.host.connection import Connection
from bramley.host.facts import Facts
from bramley.host.steps import preconditions
from bramley.host.steps.agent_job import Job
from bramley.host.steps.local_network import LocalNetwork

_CPUS = RunProbe(("sysctl", "-n", "hw.ncpu"))
_MEMORY = RunProbe(("sysctl", "-n", "hw.memsize"))
_SUDO = RunProbe(("sudo", "-n", "true"))
_TART = RunProbe((host.TART_BINARY, "--version"))
# Not as root: so that it works without sudo, too.
_AGENT = launch_daemon.job_probe(launchd.AGENT)
_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Facts about one Mac; None means unknown."""

    macos: str | None
    chip: str | None
    cpus: int | None
    memory_gib: int | None
    free_gib: int | None
    file_vault: str | None
    sudo_without_password: bool
    # These are unknown without sudo; the last one is whether macOS has replaced a wrong password by its marker.
    graphical_session: bool | None
    automatic_login: bool | None
    password_sealed: bool | None
    vms_running: bool
    tart: str | None
    agent_pid: int | None
    applied: dict[str, str]


def overview_probes(user: str) -> Sequence[Probe]:
    """Return the probes of an overview."""
    system = (preconditions.VERSION, preconditions.ARCHITECTURE, preconditions.DISK)
    others = (
        _CPUS,
        _MEMORY,
        _SUDO,
        _TART,
        _AGENT,
        loginwindow.FILE_VAULT,
        shared_probes.RUNNING_VMS,
        drift.STAMPS_FILE,
    )
    return [*system, *others, *loginwindow.probes(user)]


async def read_overview(mac: Connection, user: str) -> Overview:
    """Return an overview of a Mac; one round trip if the user is the first one of the Mac."""
    facts = await mac.probe(overview_probes(user))
    further = loginwindow.follow_up_probes(user, facts)
    return _overview(facts.merged(await mac.probe(further)) if further else facts, user)


def _overview(facts: Facts, user: str) -> Overview:
    """Return the overview in the facts."""
    has_sudo = facts.result(_SUDO).code == 0
    free = preconditions.free_bytes(facts)
    return Overview(
        macos=_first_line(facts, preconditions.VERSION),
        chip=_first_line(facts, preconditions.ARCHITECTURE),
        cpus=_number(_first_line(facts, _CPUS)),
        memory_gib=_gib(_number(_first_line(facts, _MEMORY))),
        free_gib=None if free is None else free // _GIB,
        file_vault=_first_line(facts, loginwindow.FILE_VAULT),
        sudo_without_password=has_sudo,
        graphical_session=loginwindow.has_session(user, facts),
        automatic_login=loginwindow.is_set_up(user, facts) if has_sudo else None,
        password_sealed=loginwindow.is_password_rejected(facts) if has_sudo else None,
        vms_running=shared_probes.vms_may_run(facts),
        tart=_first_line(facts, _TART),
        agent_pid=launch_daemon.pid(facts.result(_AGENT)) or None,
        applied={
            _STEPS[part]: stamp
            for part, stamp in drift.read_stamps(facts).items()
            if part in _STEPS
        },
    )


# The names of some stamps differ from those of their steps, and must not change, because Macs keep them.
_STEPS: dict[str, str] = {part: part for part in drift.Part} | {
    drift.Part.LOCAL_NETWORK: LocalNetwork.name,
    drift.Part.AGENT_JOB: Job.name,
}


def _first_line(facts: Facts, probe: RunProbe) -> str | None:
    result = facts.result(probe)
    lines = result.text.splitlines()
    return lines[0][:200] if result.code == 0 and lines else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _gib(size: int | None) -> int | None:
    return None if size is None else round(size / _GIB)


_CONTEXT = 2
_MAX_LINES = 60


@functools.singledispatch
def describe(command: Command) -> str:
    """Return one line that describes a command."""
    raise TypeError(f"{type(command).__name__} is not a command")


@describe.register
def _(command: Run) -> str:
    return f"run {shlex.join(command.argv)}{' as root' if command.as_root else ''}"


@describe.register
def _(command: Write) -> str:
    return f"write {command.path} ({command.mode:04o}, {command.owner})"


@describe.register
def _(command: Stream) -> str:
    artifact = command.artifact
    return f"upload {artifact.name} {artifact.version} ({artifact.size / 1e6:.1f} MB) to {command.path}"


@describe.register
def _(command: Folder) -> str:
    return f"folder {command.path} ({command.mode:04o}, {command.owner})"


@describe.register
def _(command: Link) -> str:
    return f"link {command.path} to {command.target}"


@describe.register
def _(command: Rename) -> str:
    return f"rename {command.path} to {command.to}"


@describe.register
def _(command: Remove) -> str:
    return f"remove {command.path}"


@describe.register
def _(command: Seal) -> str:
    return f"seal {command.path}"


@describe.register
def _(command: Wait) -> str:
    user = " as root" if command.probe.as_root else ""
    result = f"ends with code {command.code}" if command.code else "succeeds"
    text = f" and prints {command.text!r}" if command.text else ""
    return f"wait until {shlex.join(command.probe.argv)}{user} {result}{text}"


@describe.register
def _(command: Reboot) -> str:  # noqa: ARG001 - it has no options
    return "reboot"


def diff(command: Command) -> Iterator[str]:
    """Yield the lines of a unified diff for a Write; secrets and binary files are not shown."""
    if not isinstance(command, Write):
        return
    if isinstance(command.content, Secret):
        yield f"+{HIDDEN}"
        return
    before, after = _lines(command.before or b""), _lines(command.content)
    if before is None or after is None:
        yield f"+({len(command.content)} bytes of binary data)"
        return
    lines = list(difflib.unified_diff(before, after, lineterm="", n=_CONTEXT))[2:]
    yield from lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        yield f"… and {len(lines) - _MAX_LINES} lines more"


def _lines(content: bytes) -> list[str] | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.splitlines()
