"""The process of one guest, and the socket by which `tart exec` reaches its agent.

`tart run` starts it by path under the name of Apple's service, so it has to find the package by itself. Its plan comes through stdin,
and the end of stdin is the end of its tart. A guest that polls runs the poller of the runner image in a process group, which must not
outlive it. The socket is in the VM's folder and carries one JSON line each way; addresses of such
sockets must be short, so both sides change to the folder and use the bare name.
"""

import json
import os
import signal
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
SCRIPT = "dispatch-poll.sh"
# How long a poller may take to report when its guest shuts down.
_STOP_SECONDS = 10.0
_SHELL = "/bin/sh"
# Kills the process group at the end of its stdin, which is the end of the guest, even if that was killed.
_KILLER = "trap '' TERM; read -r _; kill -KILL 0"
_RUNNER = """\
#!/bin/sh
exec sh {path} "$@"
"""


class GuestDriver:
    """Performs the effects of a guest with those of a process, and its agent's with a socket."""

    def __init__(self, plan: Plan, home: str, driver: process.Driver) -> None:
        self.plan = plan
        self.bundle = layout.vm(home, plan.vm)
        self.driver = driver
        self.is_watching = not plan.outlives
        self.listener: socket.socket | None = None
        self.connections: dict[int, socket.socket] = {}
        self.poller: Poller | None = None
        driver.handlers |= {
            effects.Sleep: lambda effect: self.wait(effect.seconds),
            effects.Listen: self.listen,
            effects.Reply: self.reply,
            effects.StartPoller: self.start_poller,
            effects.PollerExit: lambda _: self.poller_exit(),
            effects.StopPoller: lambda _: self.stop_poller(),
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

    def start_poller(self, effect: effects.StartPoller) -> bool:
        """Start the poller of the runner image with a runner that is a stand-in."""
        # Its exit interrupts waits.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.poller = Poller(effect, self.driver.environment.get("PATH", os.defpath))
        return True

    def poller_exit(self) -> int | None:
        """Return the exit code of the poller, None while it runs."""
        if self.poller is None:
            raise RuntimeError("a guest used its poller before it started one")
        return self.poller.exit_code()

    def stop_poller(self) -> None:
        """Terminate the poller."""
        if self.poller is not None:
            self.poller.stop()


class Poller:
    """The processes of the poller in their own process group."""

    def __init__(self, effect: effects.StartPoller, path: str) -> None:
        # Imported here: most guests do not poll, and must start fast.
        import subprocess

        runner = _make_folder(effect.folder)
        environment = {
            "PATH": path,
            "DISPATCH_POLL_FOLDER": effect.folder,
            "DISPATCH_POLL_RUNNER": runner,
            **effect.variables,
        }
        end, self._lifetime = os.pipe()
        self._killer = subprocess.Popen(  # noqa: S603 - a constant
            [_SHELL, "-c", _KILLER], stdin=end, env={"PATH": path}, process_group=0
        )
        os.close(end)
        self._script = subprocess.Popen(  # noqa: S603 - the script of the image
            [_SHELL, script_path()],
            stdin=subprocess.DEVNULL,
            env=environment,
            process_group=self._killer.pid,
        )

    def exit_code(self) -> int | None:
        """Return the exit code of the script, None while it runs."""
        code = self._script.poll()
        if code is not None:
            self._kill()
        return code

    def stop(self) -> None:
        """Send SIGTERM to all processes and wait until they are gone."""
        import contextlib
        import subprocess

        os.killpg(self._killer.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._script.wait(_STOP_SECONDS)
        self._kill()

    def _kill(self) -> None:
        """Kill what is left of the group."""
        import contextlib

        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._killer.pid, signal.SIGKILL)
        self._script.wait()
        self._killer.wait()
        os.close(self._lifetime)


def script_path() -> str:
    """Return the poller of the runner image: from the installed package, or from the repository."""
    package = os.path.dirname(os.path.realpath(__file__))
    root = package
    for _ in range(4):
        root = os.path.dirname(root)
    installed = os.path.join(package, SCRIPT)
    return (
        installed if os.path.exists(installed) else os.path.join(root, "images", "runner", SCRIPT)
    )


def _make_folder(folder: str) -> str:
    """Make the folder of a poller and return the path of its runner."""
    import shlex

    os.makedirs(folder, mode=0o700, exist_ok=True)
    runner = os.path.join(folder, "runner")
    program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "runner.sh")
    with open(runner, "w", encoding="utf-8") as file:
        file.write(_RUNNER.format(path=shlex.quote(program)))
        os.fchmod(file.fileno(), 0o700)
    return runner


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
