"""The process face of the simulated tart: effects performed with real locks, signals, processes and time.

Signals are noted when they come and taken when the model waits, so that it is never cut between two lines. A guest is a process
of its own session that gets its plan through a pipe; the pipe's end tells it that its tart is gone.
"""

import errno
import fcntl
import json
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bramley.sim.tart import effects, layout
from bramley.sim.tart.effects import CRASHED, Answer, Interrupted, ProcessEnvironment, Steps

_LONGEST_SHEBANG = 120

# Loading leaves no garbage worth looking for.
_SCRIPT = """\
import gc, sys
gc.disable()
sys.path.insert(0, {root!r})
from bramley.sim.tart import process
process.main({home!r})
"""


def install_program(path: str, home: str, python: str) -> None:
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


# struct flock: Linux has type and whence first, Darwin last.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"


class Locks:
    """What this process has locked, by path."""

    def __init__(self) -> None:
        self._flocks: dict[str, int] = {}
        self._locks: dict[str, int] = {}

    def flock(self, path: str) -> bool:
        """Try to take an `flock`; a path that is gone, or not what it was, cannot be had."""
        if path in self._flocks:
            return True
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        if _try_flock(descriptor, fcntl.LOCK_EX) and _is_still(path, descriptor):
            self._flocks[path] = descriptor
            return True
        os.close(descriptor)
        return False

    def unflock(self, path: str) -> None:
        """Give an `flock` back."""
        os.close(self._flocks.pop(path))

    def give(self, path: str) -> int:
        """Return the descriptor that holds an `flock`, which is the caller's from now on."""
        return self._flocks.pop(path)

    def is_flocked(self, path: str) -> bool:
        """Tell whether another process holds an `flock`."""
        if path in self._flocks:
            return False
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not _try_flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> bool:
        """Try to take the POSIX write lock of a file."""
        if path in self._locks:
            return True
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                raise
            return False
        self._locks[path] = descriptor
        return True

    def unlock(self, path: str) -> None:
        """Lose a POSIX lock."""
        os.close(self._locks.pop(path))

    def holder(self, path: str) -> int | None:
        """Return the process that holds the POSIX lock of a file, unless it is ours."""
        if path in self._locks:
            return None
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            return _holder(descriptor)
        finally:
            os.close(descriptor)


def _holder(descriptor: int) -> int | None:
    asked = {"type": fcntl.F_RDLCK, "whence": 0, "start": 0, "len": 0, "pid": 0}
    darwin = ("start", "len", "pid", "type", "whence")
    linux = ("type", "whence", "start", "len", "pid")
    order = darwin if sys.platform == "darwin" else linux
    packed = struct.pack(_FLOCK, *(asked[field] for field in order))
    answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, packed))
    told = dict(zip(order, answer, strict=True))
    return None if told["type"] == fcntl.F_UNLCK else told["pid"]


def _try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: str, descriptor: int) -> bool:
    """Tell whether the path still names what we opened, which another process may have moved away meanwhile."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


GUEST_SERVICE = "com.apple.Virtualization.VirtualMachine"
CAUGHT = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
_POLL = 0.02


class Driver:
    """Performs the effects of this process."""

    def __init__(self, home: str, environment: Mapping[str, str]) -> None:
        self.home = home
        self.environment = environment
        self.locks = Locks()
        self.caught: list[str] = []
        self.guest = 0
        self.lifeline = -1
        self.bell, bell_rope = os.pipe()
        for descriptor in (self.bell, bell_rope):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(bell_rope)
        self.performers: dict[type, Callable[[Any], Any]] = {
            effects.Sleep: lambda effect: self.sleep(effect.seconds),
            effects.Out: lambda effect: write(1, f"{effect.line}\n"),
            effects.Err: lambda effect: write(2, f"{effect.line}\n"),
            effects.Write: lambda effect: write(2 if effect.is_error else 1, effect.text),
            effects.ReadStdin: lambda _: _read_all(0),
            effects.Flock: self.flock,
            effects.Unflock: lambda effect: self.locks.unflock(effect.path),
            effects.IsFlocked: lambda effect: self.locks.is_flocked(effect.path),
            effects.RunLock: lambda effect: self.locks.lock(effect.path),
            effects.RunUnlock: lambda effect: self.locks.unlock(effect.path),
            effects.RunHolder: lambda effect: self.locks.holder(effect.path),
            effects.Signal: _signal,
            effects.Boot: self.boot,
            effects.AwaitGuest: lambda _: self.await_guest(),
            effects.PowerOff: lambda _: self.power_off(),
            effects.Ask: self.ask,
        }

    def catch_signals(self) -> None:
        """Note the signals that tart handles; all others act as they do by default."""
        for number in CAUGHT:
            signal.signal(number, lambda number, _: self.caught.append(_short(number)))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def drive(self, steps: Steps) -> int:
        """Take all steps and return the exit code."""
        try:
            effect = next(steps)
            while True:
                try:
                    result = self.performers[type(effect)](effect)
                except (Interrupted, OSError) as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as done:
            return int(done.value)

    def wait(self, seconds: float, *descriptors: int) -> list[int]:
        """Wait for one of these, a signal or the time; the signal is raised."""
        limit = None if seconds == float("inf") else max(0.0, seconds)
        limit = 0 if self.caught else limit
        ready, _, _ = select.select([self.bell, *descriptors], [], [], limit)
        if self.bell in ready:
            os.read(self.bell, 512)
            ready.remove(self.bell)
        if self.caught:
            raise Interrupted(self.caught.pop(0))
        return ready

    def sleep(self, seconds: float) -> None:
        """Sleep, through whatever is no signal of ours."""
        until = time.monotonic() + seconds
        while True:
            self.wait(until - time.monotonic())
            if time.monotonic() >= until:
                return

    def flock(self, effect: effects.Flock) -> bool:
        """Take an `flock`, looking for it again and again if it is worth waiting for."""
        while not self.locks.flock(effect.path):
            if not effect.wait:
                return False
            self.sleep(_POLL)
        return True

    def boot(self, effect: effects.Boot) -> int:
        """Start the guest's process."""
        argv = [sys.executable, "-ISE", _service(self.home), effect.plan.vm]
        plan_end, self.lifeline = os.pipe()
        slot = self.locks.give(effect.slot)
        self.guest = os.fork()
        if self.guest == 0:
            environment = {**self.environment, "TART_HOME": self.home}
            _become_guest(argv, environment, plan=plan_end, slot=slot)
        os.close(plan_end)
        os.close(slot)
        write(self.lifeline, json.dumps(effect.plan._asdict()) + "\n")
        return self.guest

    def await_guest(self) -> int:
        """Wait for the guest's process to end."""
        while True:
            ended, status = os.waitpid(self.guest, os.WNOHANG)
            if ended:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else CRASHED
            self.wait(float("inf"))

    def power_off(self) -> None:
        """Kill the guest's process."""
        os.kill(self.guest, signal.SIGKILL)
        os.waitpid(self.guest, 0)

    def ask(self, effect: effects.Ask) -> Answer | None:
        """Ask the guest's agent, which may not be there yet."""
        from bramley.sim.tart import guest_process

        until = time.monotonic() + effect.seconds
        while (left := until - time.monotonic()) > 0:
            connection = guest_process.connect(layout.vm(self.home, effect.vm))
            if connection is not None:
                guest_process.send(connection, {"argv": effect.argv, "stdin": effect.stdin})
                self.wait(left, connection.fileno())
                reply = guest_process.receive(connection)
                return None if reply is None else Answer(**reply)
            self.sleep(min(left, _POLL * 5))
        return None


def _short(number: int) -> str:
    return signal.Signals(number).name.removeprefix("SIG")


def _signal(effect: effects.Signal) -> bool:
    try:
        os.kill(effect.pid, signal.Signals[f"SIG{effect.signal}"])
    except ProcessLookupError:
        return False
    return True


def write(descriptor: int, text: str) -> None:
    """Write all of a text."""
    left = text.encode()
    while left:
        left = left[os.write(descriptor, left) :]


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _service(home: str) -> str:
    """Return the guest's program under the name that Apple's has, by which agents tell guests from other processes."""
    path = os.path.join(home, ".sim", GUEST_SERVICE)
    # By its path: importing it here would load `socket`.
    program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "guest_process.py")
    if os.path.realpath(path) != program:
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(program, path)
    return path


def _become_guest(argv: list[str], environment: Mapping[str, str], *, plan: int, slot: int) -> None:
    """Leave tart's session and turn into the guest; never returns."""
    try:
        os.setsid()
        silence = os.open(os.devnull, os.O_RDWR)
        for source, target in ((plan, 0), (silence, 1), (silence, 2)):
            os.dup2(source, target)
        os.set_inheritable(slot, True)
        os.execve(argv[0], argv, environment)  # noqa: S606 - no shell is wanted
    finally:
        os._exit(CRASHED)


def process_environment(home: str, environment: Mapping[str, str]) -> ProcessEnvironment:
    """Return what the model sees of this process."""
    return ProcessEnvironment(home, environment, time.time, os.urandom)


def home_of(environment: Mapping[str, str], default: str | None) -> str:
    """Return TART_HOME."""
    fallback = os.path.join(environment.get("HOME", "/"), ".tart")
    return os.path.abspath(environment.get("TART_HOME") or default or fallback)


def run(words: list[str], default_home: str | None = None) -> int:
    """Run one command line in this process and return its exit code."""
    from bramley.sim.tart import command_line

    environment = dict(os.environ)
    home = home_of(environment, default_home)
    driver = Driver(home, environment)
    driver.catch_signals()
    return driver.drive(command_line.main(words, process_environment(home, environment)))


def main(default_home: str | None = None) -> None:
    """Be `tart`: run the command line of this process and end with its code."""
    code = run(sys.argv[1:], default_home)
    # Everything was written unbuffered; tearing the interpreter down would only take time.
    os._exit(code)
