"""The simulated tart as the artifact that a bootstrap installs: tart's bundle, with a program that runs simulated VMs.

The program is a script for the interpreter of the sandbox, so the same bytes work on each simulated Mac. Its VMs and images are in
`~/.tart` of the calling user, or in TART_HOME.
"""

from __future__ import annotations

from pathlib import PurePath

from bramley.agent.platform.linux import SIMULATED_OS
from bramley.api.names import host
from bramley.sim.macos import stand_ins, users
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import plutil
from bramley.sim.ssh import sandbox
from bramley.sim.tart.leases import LEASE_SECONDS
from bramley.sim.tart.run import DEAD_SESSION
from bramley.sim.tart.settings import TOP

_FOLDER = ".tart/.sim"
VERSION = str(TOP["version"])
# The third line is a command for the shell and a string for Python; so the process table shows tart's own path.
_EXECUTABLE = f"""\
#!/bin/sh
# simulated tart {VERSION}
''''exec {sandbox.PYTHON} -ISE "$0" "$@" # '''
import gc, os, sys
gc.disable()
sys.path.insert(0, "{sandbox.OURS}/lib")
from bramley.sim.tart import process
process.main(os.path.join(os.environ.get("HOME", "/var/root"), ".tart"))
"""


def archive() -> bytes:
    """Return the artifact: a compressed archive, always with the same bytes."""
    return stand_ins.tart(VERSION, executable=_EXECUTABLE.encode())


def mark_host(mac: Mac) -> None:
    """Write or remove the files by which the user's tart, if it exists, finds that there is no session, and the DHCP lease time.

    By another one the agent, which runs on Linux, finds the system of this Mac.
    """
    user = str(mac.state["settings"]["user"])
    has_session = mac.state["console"]["user"] == user
    _mark(mac, user, DEAD_SESSION, None if has_session else b"")
    seconds = _lease_seconds(mac)
    _mark(mac, user, LEASE_SECONDS, None if seconds is None else str(seconds).encode())
    macos, build = (mac.state["settings"][key] for key in ("macos", "build"))
    _mark(mac, user, PurePath(SIMULATED_OS).name, f"macOS {macos} ({build})".encode())


def _mark(mac: Mac, user: str, name: str, content: bytes | None) -> None:
    home, owner = users.home_of(mac.state, user), f"{user}:staff"
    path = f"{home}/{_FOLDER}/{name}"
    if not mac.files.is_folder(f"{home}/.tart") or mac.files.read(path) == content:
        return
    if content is None:
        mac.files.remove(path)
        return
    if not mac.files.is_folder(f"{home}/{_FOLDER}"):
        mac.files.make_folder(f"{home}/{_FOLDER}", owner=owner)
    mac.files.write(path, content, owner=owner)


def _lease_seconds(mac: Mac) -> int | None:
    """Return the lease time in the preferences of the DHCP server; None if there is none, or not as a number."""
    preferences = plutil.read_dict(mac, host.SHARING_PREFERENCES) or {}
    settings = preferences.get(host.SHARING_DHCP)
    seconds = settings.get(host.SHARING_LEASE_SECONDS) if isinstance(settings, dict) else None
    return seconds if type(seconds) is int and seconds > 0 else None
