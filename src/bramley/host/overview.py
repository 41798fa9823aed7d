"""What a Mac is like, for people: the answers to a few questions, each read into a word or a number.

Nothing is decided from it; steps ask for what they need themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bramley.api.names import host, launchd
from bramley.host import drift, login, stamping, vms
from bramley.host.commands import Look, Probe
from bramley.host.facts import Facts

_VERSION = Look(("sw_vers", "-productVersion"))
_CHIP = Look(("uname", "-m"))
_CPUS = Look(("sysctl", "-n", "hw.ncpu"))
_MEMORY = Look(("sysctl", "-n", "hw.memsize"))
_DISK = Look(("df", "-k", "/"))
_SUDO = Look(("sudo", "-n", "true"))
_TART = Look((host.TART_BINARY, "--version"))
_AGENT = Look(("launchctl", "print", launchd.in_system(launchd.AGENT)), as_root=True)
_GIB = 1024**3
_KIB = 1024


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
    questions = (_VERSION, _CHIP, _CPUS, _MEMORY, _DISK, _SUDO, _TART, _AGENT)
    return [*questions, *login.looks(user), login.FILE_VAULT, vms.PROBE, stamping.FILE]


def read(seen: Facts, user: str) -> Overview:
    """Return what the answers say."""
    has_sudo = seen.said(_SUDO).code == 0
    return Overview(
        macos=_text(seen, _VERSION),
        chip=_text(seen, _CHIP),
        cpus=_number(_text(seen, _CPUS)),
        memory_gib=_gib(_number(_text(seen, _MEMORY))),
        free_gib=_free(seen),
        file_vault=_text(seen, login.FILE_VAULT),
        sudo_without_password=has_sudo,
        graphical_session=login.has_session(user, seen),
        automatic_login=login.is_set_up(user, seen),
        password_sealed=login.is_sealed(seen) if has_sudo else None,
        vms_running=vms.may_run(seen),
        tart=_text(seen, _TART),
        agent_pid=_pid(seen),
        applied={part: stamp for part, stamp in stamping.read(seen).items() if part in _PARTS},
    )


_PARTS = frozenset(drift.Part)


def _text(seen: Facts, look: Look) -> str | None:
    said = seen.said(look)
    lines = said.text.splitlines()
    return lines[0][:200] if said.code == 0 and lines else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _gib(count: int | None) -> int | None:
    return None if count is None else round(count / _GIB)


def _free(seen: Facts) -> int | None:
    """Return the fourth column of the last line, which is in kibibytes."""
    lines = seen.said(_DISK).text.splitlines()
    words = lines[-1].split() if lines else []
    free = _number(words[3]) if len(words) > 3 else None
    return None if free is None else free * _KIB // _GIB


def _pid(seen: Facts) -> int | None:
    for line in seen.said(_AGENT).text.splitlines():
        name, _, value = line.strip().partition(" = ")
        if name == "pid":
            return _number(value)
    return None
