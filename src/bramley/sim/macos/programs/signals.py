"""killall and pgrep: processes by their names, which are launchd's jobs and what the state has besides them.

A hang-up ends loginwindow, and with it the session; as it is bound to the console, launchd does not start it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bramley.sim.macos import launchd, loginwindow
from bramley.sim.macos.call import Call, Said

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

_USAGE = 2
# What the kernel keeps of a process' name.
_LONGEST_NAME = 15


def killall(mac: Mac, call: Call) -> Said:
    """Send a signal to the processes of a name; any signal that programs die of does the same here."""
    names = [word for word in call.argv[1:] if not word.startswith("-")]
    if len(names) != 1:
        return Said(1, err="usage: killall [-signal] name\n")
    with mac.change() as state:
        found = [
            (target, job)
            for target, job in state["launchd"]["jobs"].items()
            if "pid" in job and _name(job) == names[0]
        ]
        if not found:
            return Said(1, err="No matching processes were found\n")
        if not call.is_root:
            return Said(1, err="No matching processes belonging to you were found\n")
        for target, _ in found:
            launchd.hang_up(mac, state, target)
            if target == loginwindow.TARGET:
                loginwindow.log_out(mac, state)
    return Said()


def pgrep(mac: Mac, call: Call) -> Said:
    """Print the ids of processes whose name, or with -f whose whole command line, matches; 1 if there is none.

    Of another user's process only root is told more than the beginning of its name.
    """
    words = [word for word in call.argv[1:] if not word.startswith("-")]
    options = {letter for word in call.argv[1:] if word.startswith("-") for letter in word[1:]}
    if len(words) != 1 or options - {"f", "x", "q", "l"}:
        return Said(_USAGE, err="usage: pgrep [-flqx] pattern\n")
    try:
        wanted = re.compile(words[0])
    except re.error:
        return Said(_USAGE, err="pgrep: Cannot compile regular expression\n")
    matches = wanted.fullmatch if "x" in options else wanted.search
    found = []
    for pid, command, user in processes(mac.state):
        name = command.partition(" ")[0].rpartition("/")[2]
        whole = command if "f" in options else name
        if matches(whole if call.is_root or user == call.user else name[:_LONGEST_NAME]):
            found.append(pid)
    out = "" if "q" in options else "".join(f"{pid}\n" for pid in found)
    return Said(0 if found else 1, out=out)


def processes(state: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """Yield the ids, command lines and users of what runs: jobs, and what somebody has put into the state under `processes`."""
    for job in state["launchd"]["jobs"].values():
        if "pid" in job:
            yield job["pid"], " ".join(job["arguments"]), job["user"] or "root"
    for process in state["processes"]:
        yield process["pid"], process["command"], process.get("user", state["settings"]["user"])


def _name(job: Mapping[str, Any]) -> str:
    return str(job["program"] or job["arguments"][0]).rpartition("/")[2]
