"""The simulated tart as a program: performs its effects with real locks, signals, processes and time, and installs it.

Signals are recorded when they arrive and handled when the model waits, so that it is never interrupted between two lines. A guest is a
process in its own session that gets its plan through a pipe; end of file on the pipe means that its tart is gone. A POSIX lock is
lost by closing any descriptor of its file, so a file that we hold one on is never opened a second time.
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
from bramley.sim.tart.effects import CRASHED, CommandResult, Interrupted, ProcessEnvironment, Steps

_MAX_SHEBANG_LENGTH = 120
# Collecting garbage would only cost time: the process is short.
_SCRIPT = """\
import gc, sys
gc.disable()
sys.path.insert(0, {root!r})
from bramley.sim.tart import process
process.main({home!r})
"""
# struct flock: type, whence, start, length and pid on Linux; start, length, pid, type and whence on Darwin.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"
GUEST_SERVICE = "com.apple.Virtualization.VirtualMachine"
CAUGHT = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
_POLL = 0.02


class Driver:
    """Performs the effects of this process."""

    def __init__(self, home: str, environment: Mapping[str, str]) -> None:
        self.home = home
        self.environment = environment
        self.locks = Locks()
        self.pending: list[str] = []
        self.guest = 0
        self.plan_pipe = -1
        self._wakeup_read, wakeup_write = os.pipe()
        for descriptor in (self._wakeup_read, wakeup_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wakeup_write)
        self.handlers: dict[type, Callable[[Any], Any]] = {
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
            effects.RunInGuest: self.run_in_guest,
        }

    def catch_signals(self) -> None:
        """Record the signals that tart handles; all others have their default action."""
        for number in CAUGHT:
            signal.signal(number, lambda number, _: self.pending.append(_signal_name(number)))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def drive(self, steps: Steps) -> int:
        """Run all steps and return the exit code."""
        try:
            effect = next(steps)
            while True:
                try:
                    result = self.handlers[type(effect)](effect)
                except (Interrupted, OSError) as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as done:
            return int(done.value)

    def wait(self, seconds: float, *descriptors: int) -> list[int]:
        """Wait for one of the descriptors, a signal or the timeout; a signal raises Interrupted."""
        limit = None if seconds == float("inf") else max(0.0, seconds)
        limit = 0 if self.pending else limit
        ready, _, _ = select.select([self._wakeup_read, *descriptors], [], [], limit)
        if self._wakeup_read in ready:
            os.read(self._wakeup_read, 512)
            ready.remove(self._wakeup_read)
        if self.pending:
            raise Interrupted(self.pending.pop(0))
        return ready

    def sleep(self, seconds: float) -> None:
        """Sleep; only the signals that tart handles interrupt it."""
        until = time.monotonic() + seconds
        while True:
            self.wait(until - time.monotonic())
            if time.monotonic() >= until:
                return

    def flock(self, effect: effects.Flock) -> bool:
        """Acquire an `flock`, polling for it if the effect waits."""
        while not self.locks.flock(effect.path):
            if not effect.wait:
                return False
            self.sleep(_POLL)
        return True

    def boot(self, effect: effects.Boot) -> int:
        """Start the guest's process."""
        argv = [sys.executable, "-ISE", _service(self.home), effect.plan.vm]
        plan_end, self.plan_pipe = os.pipe()
        slot = self.locks.hand_over(effect.slot)
        self.guest = os.fork()
        if self.guest == 0:
            environment = {**self.environment, "TART_HOME": self.home}
            _exec_guest(argv, environment, plan=plan_end, slot=slot)
        os.close(plan_end)
        os.close(slot)
        write(self.plan_pipe, json.dumps(effect.plan._asdict()) + "\n")
        return self.guest

    def await_guest(self) -> int:
        """Wait for the guest's process to end."""
        while True:
            pid, status = os.waitpid(self.guest, os.WNOHANG)
            if pid:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else CRASHED
            self.wait(float("inf"))

    def power_off(self) -> None:
        """Kill the guest's process."""
        os.kill(self.guest, signal.SIGKILL)
        os.waitpid(self.guest, 0)

    def run_in_guest(self, effect: effects.RunInGuest) -> CommandResult | None:
        """Send a command to the guest's agent, which may not listen yet."""
        from bramley.sim.tart import guest_process

        until = time.monotonic() + effect.seconds
        while (remaining := until - time.monotonic()) > 0:
            connection = guest_process.connect(layout.vm(self.home, effect.vm))
            if connection is not None:
                guest_process.send(connection, {"argv": effect.argv, "stdin": effect.stdin})
                self.wait(remaining, connection.fileno())
                reply = guest_process.receive(connection)
                return None if reply is None else CommandResult(**reply)
            self.sleep(min(remaining, _POLL * 5))
        return None


def _signal_name(number: int) -> str:
    return signal.Signals(number).name.removeprefix("SIG")


def _signal(effect: effects.Signal) -> bool:
    try:
        os.kill(effect.pid, signal.Signals[f"SIG{effect.signal}"])
    except ProcessLookupError:
        return False
    return True


def write(descriptor: int, text: str) -> None:
    """Write all of a text."""
    rest = text.encode()
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _service(home: str) -> str:
    """Return the guest's program under the name of Apple's service, by which agents recognize guests."""
    path = os.path.join(home, ".sim", GUEST_SERVICE)
    # By its path: importing it here would load `socket`.
    program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "guest_process.py")
    if os.path.realpath(path) != program:
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(program, path)
    return path


def _exec_guest(argv: list[str], environment: Mapping[str, str], *, plan: int, slot: int) -> None:
    """Start a new session and execute the guest; never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for source, target in ((plan, 0), (null, 1), (null, 2)):
            os.dup2(source, target)
        os.set_inheritable(slot, True)
        os.execve(argv[0], argv, environment)  # noqa: S606 - no shell is needed
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
    """Run the command line of this process and exit with its code."""
    code = run(sys.argv[1:], default_home)
    # All output was written unbuffered; a regular exit of the interpreter would only take time.
    os._exit(code)


class Locks:
    """The locks that this process holds, by path."""

    def __init__(self) -> None:
        self._flocks: dict[str, int] = {}
        self._locks: dict[str, int] = {}

    def flock(self, path: str) -> bool:
        """Try to acquire an `flock`; return False also if the path is gone or was replaced meanwhile."""
        if path in self._flocks:
            return True
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        if _try_flock(descriptor, fcntl.LOCK_EX) and _is_same_file(path, descriptor):
            self._flocks[path] = descriptor
            return True
        os.close(descriptor)
        return False

    def unflock(self, path: str) -> None:
        """Release an `flock`."""
        os.close(self._flocks.pop(path))

    def hand_over(self, path: str) -> int:
        """Return the descriptor that holds an `flock` and pass its ownership to the caller."""
        return self._flocks.pop(path)

    def is_flocked(self, path: str) -> bool:
        """Return whether another process holds an `flock`."""
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
        """Try to acquire the POSIX write lock of a file."""
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
        """Release a POSIX lock."""
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
    kind, pid = (3, 2) if sys.platform == "darwin" else (0, 4)
    request = [fcntl.F_RDLCK if field == kind else 0 for field in range(5)]
    packed = struct.pack(_FLOCK, *request)
    response = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, packed))
    return None if response[kind] == fcntl.F_UNLCK else response[pid]


def _try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(path: str, descriptor: int) -> bool:
    """Return whether the path still names the open file, which another process may have moved meanwhile."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


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
    """Return the first line; the kernel accepts no long interpreter paths and none with blanks, the shell does."""
    if len(python) <= _MAX_SHEBANG_LENGTH and " " not in python:
        return f"#!{python} -ISE\n"
    # A command for the shell, a string for Python.
    return f"#!/bin/sh\n''''exec '{python}' -ISE \"$0\" \"$@\" # '''\n"
