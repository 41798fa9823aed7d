"""The simulated tart as the artifact that a bootstrap installs: tart's bundle, with a program that runs simulated VMs.

The program is a script for the interpreter of the sandbox, so the same bytes work on each simulated Mac. Its VMs and images are in
`~/.tart` of the calling user, or in TART_HOME.
"""

from __future__ import annotations

from bramley.sim.macos import stand_ins, users
from bramley.sim.macos.mac import Mac
from bramley.sim.ssh import sandbox
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


def mark_session(mac: Mac) -> None:
    """Create or remove the file by which the user's tart, if it exists, finds that there is no session."""
    user = str(mac.state["settings"]["user"])
    home = users.home_of(mac.state, user)
    if not mac.files.is_folder(f"{home}/.tart"):
        return
    mark = f"{home}/{_FOLDER}/{DEAD_SESSION}"
    has_session = mac.state["console"]["user"] == user
    if has_session and mac.files.exists(mark):
        mac.files.remove(mark)
    elif not (has_session or mac.files.exists(mark)):
        if not mac.files.is_folder(f"{home}/{_FOLDER}"):
            mac.files.make_folder(f"{home}/{_FOLDER}", owner=f"{user}:staff")
        mac.files.write(mark, b"", owner=f"{user}:staff")
