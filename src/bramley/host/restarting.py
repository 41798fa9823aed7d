"""When the agent's process is older than what it was started with, and so has to make place for another one.

Whoever changes that writes down the process of now, before the change: a cut leaves a note too many and never one too few. The
note is never removed; it is spent once the agent has another process. Numbers of processes come again after a start of the Mac, so
the start is noted, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from bramley.api.names import host, launchd
from bramley.host import boots, launch_daemon
from bramley.host.commands import Command, Folder, LookAt, Probe, Write
from bramley.host.facts import Facts

AGENT = launch_daemon.job(launchd.AGENT)
_NOTE = LookAt(host.RESTART_DUE, most=64)
LOOKS: tuple[Probe, ...] = (AGENT, boots.BOOT, _NOTE)


def is_due(seen: Facts) -> bool:
    """Tell whether the agent still has the process that was to be replaced."""
    return _now(seen) != 0 and seen.file(_NOTE) == _note(seen)


def note(seen: Facts) -> Iterator[Command]:
    """Yield what says that the agent of now has to be restarted; nothing if none runs, or it was said already."""
    if _now(seen) == 0 or is_due(seen):
        return
    yield Folder(path=host.STAMPS_FOLDER, purpose="make the folder of the stamps")
    yield Write(
        path=host.RESTART_DUE,
        content=_note(seen),
        purpose="note that the agent has to be restarted",
        before=seen.file(_NOTE),
    )


def _now(seen: Facts) -> int:
    return launch_daemon.pid(seen.said(AGENT))


def _note(seen: Facts) -> bytes:
    return f"{boots.name(seen)} {_now(seen)}\n".encode()
