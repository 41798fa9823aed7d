"""The simulated tart as the artifact that a bootstrap installs: tart's bundle, with a program in it that runs VMs.

The program is a script for the interpreter that is lent to every simulated Mac, so the same bytes work on each. Its VMs and
images lie in `~/.tart` of whoever calls it, or where TART_HOME says.
"""

from __future__ import annotations

from bramley.sim.macos import stand_ins, users
from bramley.sim.macos.mac import Mac
from bramley.sim.ssh import sandbox
from bramley.sim.tart.run import DEAD_SESSION
from bramley.sim.tart.settings import TOP

_FOLDER = ".tart/.sim"
VERSION = str(TOP["version"])
# The third line is a command for the shell and a text for Python; tart is seen by its own path in the process table.
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
    """Return the artifact: a compressed archive, the same to the byte each time."""
    return stand_ins.tart(VERSION, executable=_EXECUTABLE.encode())


def mark_session(mac: Mac) -> None:
    """Mark the user's tart, once there is one, as without a session, or take the mark away."""
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
