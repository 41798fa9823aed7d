"""Installing the simulated tart as a program: a small script for the given interpreter, which starts it without site-packages."""

import os

_LONGEST_SHEBANG = 120

# Loading leaves no garbage worth looking for.
_SCRIPT = """\
import gc, sys
gc.disable()
sys.path.insert(0, {root!r})
from bramley.sim.tart import process
process.main({home!r})
"""


def install(path: str, home: str, python: str) -> None:
    """Write the program to `path`; without TART_HOME in its environment it works in `home`."""
    root = os.path.abspath(__file__)
    for _ in range(4):
        root = os.path.dirname(root)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    text = _first_line(python) + _SCRIPT.format(root=root, home=os.path.abspath(home))
    unfinished = f"{path}.new"
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o755)
    os.replace(unfinished, path)


def _first_line(python: str) -> str:
    """Return the line that starts the interpreter; the kernel reads neither long ones nor blanks, the shell does."""
    if len(python) <= _LONGEST_SHEBANG and " " not in python:
        return f"#!{python} -ISE\n"
    # For the shell a command, for Python a text.
    return f"#!/bin/sh\n''''exec '{python}' -ISE \"$0\" \"$@\" # '''\n"
