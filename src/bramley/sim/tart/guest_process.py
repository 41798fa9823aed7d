"""The process of one guest, and the socket by which `tart exec` reaches its agent.

`tart run` starts it by path under the name of Apple's service, so it has to find the package by itself. Its plan comes through stdin,
and the end of stdin is the end of its tart. The socket is in the VM's folder and carries one JSON line each way; addresses of such
sockets must be short, so both sides change to the folder and use the bare name.
"""

import json
import os
import socket
import sys
from typing import Any

if __name__ == "__main__":
    root = os.path.realpath(__file__)
    for _ in range(4):
        root = os.path.dirname(root)
    sys.path.insert(0, root)

from bramley.sim.tart import effects, layout, process
from bramley.sim.tart.effects import CRASHED, Plan, Request

TART = 0  # stdin
_REPLY_TIMEOUT = 5.0


class GuestDriver:
    """Performs the effects of a guest with those of a process, and its agent's with a socket."""

    def __init__(self, plan: Plan, home: str, driver: process.Driver) -> None:
        self.plan = plan
        self.bundle = layout.vm(home, plan.vm)
        self.driver = driver
        self.is_watching = not plan.outlives
        self.listener: socket.socket | None = None
        self.connections: dict[int, socket.socket] = {}
        driver.handlers |= {
            effects.Sleep: lambda effect: self.wait(effect.seconds),
            effects.Listen: self.listen,
            effects.Reply: self.reply,
        }

    def wait(self, seconds: float, *descriptors: int) -> list[int]:
        """Wait as any process does, and die with our tart unless the plan is to outlive it."""
        watched = (TART,) if self.is_watching else ()
        ready = self.driver.wait(seconds, *watched, *descriptors)
        if TART in ready and self.is_watching:
            os._exit(CRASHED)
        return ready

    def listen(self, effect: effects.Listen) -> Request | None:
        """Wait for the next request."""
        if self.listener is None:
            self.listener = open_control_socket(self.bundle)
        if self.listener.fileno() not in self.wait(effect.seconds, self.listener.fileno()):
            return None
        connection, _ = self.listener.accept()
        message = receive(connection)
        if message is None:
            connection.close()
            return None
        request = Request(tuple(message["argv"]), message["stdin"], connection.fileno())
        self.connections[request.id] = connection
        return request

    def reply(self, effect: effects.Reply) -> None:
        """Send the result on the connection of the request."""
        with self.connections.pop(effect.request.id) as connection:
            send(connection, effect.result._asdict())


def connect(bundle: str) -> socket.socket | None:
    """Return a connection to the agent of a VM's guest, or None if it does not listen."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_REPLY_TIMEOUT)
    try:
        os.chdir(bundle)
        connection.connect(layout.SOCKET)
    except OSError:
        connection.close()
        return None
    return connection


def open_control_socket(bundle: str) -> socket.socket:
    """Listen in a VM's folder; a socket that an earlier run left is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(bundle)
    if os.path.lexists(layout.SOCKET):
        os.unlink(layout.SOCKET)
    listener.bind(layout.SOCKET)
    listener.listen()
    return listener


def send(connection: socket.socket, message: Any) -> None:
    """Send one line; a closed connection is ignored."""
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        return


def receive(connection: socket.socket) -> Any | None:
    """Return one line, or None if the peer closed the connection."""
    connection.settimeout(_REPLY_TIMEOUT)
    try:
        with connection.makefile("rb") as lines:
            line = lines.readline()
    except OSError:
        return None
    return json.loads(line) if line.endswith(b"\n") else None


def main() -> None:
    """Run one guest in this process."""
    from bramley.sim.tart import guest

    environment = dict(os.environ)
    home = process.home_of(environment, None)
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(TART, 1 << 16)
        if not part:
            os._exit(CRASHED)
        line += part
    plan = Plan(**json.loads(line))
    driver = process.Driver(home, environment)
    GuestDriver(plan, home, driver)
    os._exit(driver.drive(guest.run_guest(plan, process.process_environment(home, environment))))


if __name__ == "__main__":
    main()
