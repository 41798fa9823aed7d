"""What a Mac is like, for people: the answers to a few questions, each read into a word or a number.

Nothing is decided from it; steps ask for what they need themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bramley.api.names import host, launchd
from bramley.host import drift, launch_daemon, login, stamping, vms
from bramley.host.commands import Look, Probe
from bramley.host.connection import Connection
from bramley.host.facts import Facts
from bramley.host.steps import preconditions
from bramley.host.steps.agent_job import Job
from bramley.host.steps.local_network import LocalNetwork

_CPUS = Look(("sysctl", "-n", "hw.ncpu"))
_MEMORY = Look(("sysctl", "-n", "hw.memsize"))
_SUDO = Look(("sudo", "-n", "true"))
_TART = Look((host.TART_BINARY, "--version"))
# Not as root: whoever has no sudo is told, too, whether it runs.
_AGENT = launch_daemon.job(launchd.AGENT)
_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One Mac; what could not be found out is None."""

    macos: str | None
    chip: str | None
    cpus: int | None
    memory_gib: int | None
    free_gib: int | None
    file_vault: str | None
    sudo_without_password: bool
    graphical_session: bool
    automatic_login: bool
    # macOS has replaced the password of automatic login, because it was wrong; None: not to be seen without sudo.
    password_sealed: bool | None
    vms_running: bool
    tart: str | None
    agent_pid: int | None
    applied: dict[str, str]


def looks(user: str) -> Sequence[Probe]:
    """Return the questions."""
    system = (preconditions.VERSION, preconditions.ARCHITECTURE, preconditions.DISK)
    questions = (_CPUS, _MEMORY, _SUDO, _TART, _AGENT, login.FILE_VAULT, vms.PROBE, stamping.FILE)
    return [*system, *questions, *login.looks(user)]


async def ask(mac: Connection, user: str) -> Overview:
    """Ask a Mac, in one round trip if its user is the first one, and return what it is like."""
    seen = await mac.look(looks(user))
    further = login.looks_further(user, seen)
    return _read(seen.and_then(await mac.look(further)) if further else seen, user)


def _read(seen: Facts, user: str) -> Overview:
    """Return what the answers say."""
    has_sudo = seen.said(_SUDO).code == 0
    free = preconditions.free_bytes(seen)
    return Overview(
        macos=_text(seen, preconditions.VERSION),
        chip=_text(seen, preconditions.ARCHITECTURE),
        cpus=_number(_text(seen, _CPUS)),
        memory_gib=_gib(_number(_text(seen, _MEMORY))),
        free_gib=None if free is None else free // _GIB,
        file_vault=_text(seen, login.FILE_VAULT),
        sudo_without_password=has_sudo,
        graphical_session=login.has_session(user, seen),
        automatic_login=login.is_set_up(user, seen),
        password_sealed=login.is_sealed(seen) if has_sudo else None,
        vms_running=vms.may_run(seen),
        tart=_text(seen, _TART),
        agent_pid=launch_daemon.pid(seen.said(_AGENT)) or None,
        applied={
            _STEPS[part]: stamp for part, stamp in stamping.read(seen).items() if part in _STEPS
        },
    )


# Stamps are older than the names of some steps, and Macs keep them.
_STEPS: dict[str, str] = {part: part for part in drift.Part} | {
    drift.Part.LOCAL_NETWORK: LocalNetwork.name,
    drift.Part.AGENT_JOB: Job.name,
}


def _text(seen: Facts, look: Look) -> str | None:
    said = seen.said(look)
    lines = said.text.splitlines()
    return lines[0][:200] if said.code == 0 and lines else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _gib(count: int | None) -> int | None:
    return None if count is None else round(count / _GIB)
