"""The process of one guest. Its plan comes through stdin, and the end of stdin is the end of its tart.

Started by path, and under the name of Apple's service, by `tart run`; so it has to find the package by itself.
"""

import json
import os
import sys
from typing import TYPE_CHECKING

if __name__ == "__main__":
    root = os.path.realpath(__file__)
    for _ in range(4):
        root = os.path.dirname(root)
    sys.path.insert(0, root)

from bramley.sim.tart import effects, layout, process
from bramley.sim.tart.effects import CRASHED, Plan, Request

if TYPE_CHECKING:
    import socket

TART = 0  # stdin


class GuestDriver:
    """Performs the effects of a guest with those of a process, and its agent's with a socket."""

    def __init__(self, plan: Plan, home: str, driver: process.Driver) -> None:
        self.plan = plan
        self.bundle = layout.vm(home, plan.vm)
        self.driver = driver
        self.is_watching = not plan.outlives
        self.listener: socket.socket | None = None
        self.connections: dict[int, socket.socket] = {}
        driver.performers |= {
            effects.Sleep: lambda effect: self.sleep(effect.seconds),
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

    def sleep(self, seconds: float) -> None:
        """Sleep with an eye on our tart."""
        self.wait(seconds)

    def listen(self, effect: effects.Listen) -> Request | None:
        """Wait for somebody who asks."""
        from bramley.sim.tart import sockets

        if self.listener is None:
            self.listener = sockets.listen(self.bundle)
        if self.listener.fileno() not in self.wait(effect.seconds, self.listener.fileno()):
            return None
        connection, _ = self.listener.accept()
        asked = sockets.receive(connection)
        if asked is None:
            connection.close()
            return None
        request = Request(tuple(asked["argv"]), asked["stdin"], connection.fileno())
        self.connections[request.id] = connection
        return request

    def reply(self, effect: effects.Reply) -> None:
        """Answer on the connection that a request came by."""
        from bramley.sim.tart import sockets

        with self.connections.pop(effect.request.id) as connection:
            sockets.send(connection, effect.answer._asdict())


def main() -> None:
    """Live one guest's life in this process."""
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
    os._exit(driver.drive(guest.live(plan, process.surroundings(home, environment))))


if __name__ == "__main__":
    main()
