"""The simulated tart as the artifact that a bootstrap installs: tart's bundle, with a program in it that runs VMs.

The program is a script for the interpreter that is lent to every simulated Mac, so the same bytes work on each. Its VMs and
images lie in `~/.tart` of whoever calls it, or where TART_HOME says.
"""

from __future__ import annotations

from bramley.sim.macos import stand_ins
from bramley.sim.ssh import bubble
from bramley.sim.tart.settings import TOP

VERSION = str(TOP["version"])

# The third line is a command for the shell and a text for Python; tart is seen by its own path in the process table.
_EXECUTABLE = f"""\
#!/bin/sh
# simulated tart {VERSION}
''''exec {bubble.PYTHON} -ISE "$0" "$@" # '''
import gc, os, sys
gc.disable()
sys.path.insert(0, "{bubble.OURS}/lib")
from bramley.sim.tart import process
process.main(os.path.join(os.environ.get("HOME", "/var/root"), ".tart"))
"""


def archive() -> bytes:
    """Return the artifact: a compressed archive, the same to the byte each time."""
    return stand_ins.tart(VERSION, executable=_EXECUTABLE.encode())
