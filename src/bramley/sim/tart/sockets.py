"""The way from `exec` to the guest's agent: a socket in the VM's folder, one JSON line there and one back.

Addresses of such sockets are short, so both sides go to the folder and use the bare name.
"""

import json
import os
import socket
from typing import Any

from bramley.sim.tart import layout

_PATIENCE = 5.0


def connect(bundle: str) -> socket.socket | None:
    """Return a connection to the agent of a VM's guest, or None if nobody listens."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_PATIENCE)
    try:
        os.chdir(bundle)
        connection.connect(layout.SOCKET)
    except OSError:
        connection.close()
        return None
    return connection


def listen(bundle: str) -> socket.socket:
    """Listen in a VM's folder; a socket that an earlier run left is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(bundle)
    if os.path.lexists(layout.SOCKET):
        os.unlink(layout.SOCKET)
    listener.bind(layout.SOCKET)
    listener.listen()
    return listener


def send(connection: socket.socket, message: Any) -> None:
    """Send one line; that nobody is there to read it is the reader's trouble."""
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        return


def receive(connection: socket.socket) -> Any | None:
    """Return one line, or None if the other side went away."""
    connection.settimeout(_PATIENCE)
    try:
        with connection.makefile("rb") as lines:
            line = lines.readline()
    except OSError:
        return None
    return json.loads(line) if line.endswith(b"\n") else None
