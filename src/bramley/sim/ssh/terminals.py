"""Terminals for commands that ask for one: a real one of this machine, with the size and the modes that the client wants."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from typing import TYPE_CHECKING

import asyncssh

if TYPE_CHECKING:
    Channel = asyncssh.SSHServerProcess[bytes]

# Modes of the client that we follow: where each stands in a terminal's settings.
_LOCAL = 3
_MODES = (
    (asyncssh.PTY_ECHO, termios.ECHO),
    (asyncssh.PTY_ICANON, termios.ICANON),
    (asyncssh.PTY_ISIG, termios.ISIG),
)


def open_for(channel: Channel) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Return our side of a new terminal, once to write and once to read, and the command's three files."""
    ours, theirs = os.openpty()
    columns, rows, width, height = channel.term_size
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))
    settings = termios.tcgetattr(theirs)
    for mode, bit in _MODES:
        wanted = channel.term_modes.get(mode)
        if wanted is not None:
            settings[_LOCAL] = settings[_LOCAL] | bit if wanted else settings[_LOCAL] & ~bit
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    return (os.dup(ours), ours), (theirs, theirs, theirs)
