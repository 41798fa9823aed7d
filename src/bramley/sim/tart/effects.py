"""The effects of the simulated tart: each command, and each guest, is a generator that yields them to a driver.

The model reads and writes files under TART_HOME itself; time, output, locks, signals and processes are the driver's part. `process`
is the driver with real processes and locks, `in_process` the one under virtual time with locks in memory.

Rules for a driver:
- A signal is delivered by throwing `Interrupted` at the next effect that waits (`Sleep`, `Flock`, `AwaitGuest`, `RunInGuest`, `Listen`, `HttpRequest`), or at the one now waiting.
- SIGKILL and SIGTERM drop the generator. The model has no cleanup in `finally`, so closing it is harmless.
- When a process ends, its locks are released; its guest dies, too, unless it `outlives`.
- Paths are `str`: `pathlib` alone would cost a call of the shim a third of its time.
"""

from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Interrupted(Exception):
    """A signal that tart handles arrived: `INT`, `USR1` or `USR2`."""

    def __init__(self, signal: str) -> None:
        super().__init__(signal)
        self.signal = signal


class ProcessEnvironment(NamedTuple):
    """What the driver gives to one process of the simulation; nothing else enters the model."""

    home: str  # TART_HOME
    environment: Mapping[str, str]
    now: Callable[[], float]  # seconds since the epoch
    entropy: Callable[[int], bytes]


class Sleep(NamedTuple):
    """Wait; infinity is a hang."""

    seconds: float


class Out(NamedTuple):
    """Write a line to stdout."""

    line: str


class Err(NamedTuple):
    """Write a line to stderr."""

    line: str


class Write(NamedTuple):
    """Write text without adding a newline to stdout or stderr, for the output of `exec`."""

    text: str
    is_error: bool


class ReadStdin(NamedTuple):
    """Return all of stdin as bytes."""


class Flock(NamedTuple):
    """Acquire the exclusive `flock` of a file or folder; return whether we hold it. With `wait`, wait without limit."""

    path: str
    wait: bool


class Unflock(NamedTuple):
    """Release an `flock`."""

    path: str


class IsFlocked(NamedTuple):
    """Return whether another process holds the `flock`."""

    path: str


class RunLock(NamedTuple):
    """Try to acquire the POSIX write lock of a file, which marks a running VM; return whether we hold it."""

    path: str


class RunUnlock(NamedTuple):
    """Release the POSIX lock; with real locks, closing any descriptor of the file does so, so the model never reopens it."""

    path: str


class RunHolder(NamedTuple):
    """Return the pid that holds the POSIX lock of a file, or None; our own does not count."""

    path: str


class Signal(NamedTuple):
    """Send `INT`, `USR1` or `KILL` to a process of the simulation; return whether it was there."""

    pid: int
    signal: str


class Plan(NamedTuple):
    """All that a guest gets at power on; plain values only, since it is sent to another process."""

    vm: str
    mac: str
    shares: dict[str, dict[str, Any]]  # by name: {"path": …, "read_only": …}
    outlives: bool  # a fault: it continues when its tart is gone
    is_macos: bool = True


class Boot(NamedTuple):
    """Start the guest as a process outside our process group; it inherits our `flock` of `slot`. Return its pid."""

    plan: Plan
    slot: str


class AwaitGuest(NamedTuple):
    """Wait for our guest's end and return its code: one of `HALTED`, `CRASHED`, `DISCONNECTED`."""


class PowerOff(NamedTuple):
    """Kill our guest and wait until its process is gone."""


class CommandResult(NamedTuple):
    """The result of a command in the guest; the caller waits for the `seconds` that it takes."""

    code: int
    stdout: str
    stderr: str
    seconds: float


class RunInGuest(NamedTuple):
    """Run a command by the agent of a VM's guest; return its CommandResult, or None if there is none within `seconds`."""

    vm: str
    argv: tuple[str, ...]
    stdin: str
    seconds: float


class Request(NamedTuple):
    """A command that arrived at the guest; `id` is the driver's."""

    argv: tuple[str, ...]
    stdin: str
    id: int


class Listen(NamedTuple):
    """In a guest: wait for the next Request, and return None when none came within `seconds`; 0 takes one that waits."""

    seconds: float


class Reply(NamedTuple):
    """In a guest: send the result of a Request."""

    request: Request
    result: CommandResult


class StartPoller(NamedTuple):
    """In a guest: start the poller of the runner image in `folder`; return False if this driver has no processes."""

    folder: str
    variables: Mapping[str, str]


class PollerExit(NamedTuple):
    """In a guest: return the exit code of its poller, None while it runs. Its exit ends a `Listen` or `Sleep`."""


class StopPoller(NamedTuple):
    """In a guest: send SIGTERM to all processes of its poller, as a shutdown does, and wait until they are gone."""


class HttpAnswer(NamedTuple):
    """The answer to a request of a guest: headers by lower-case name, and status 0 without a complete answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


class SendRequest(NamedTuple):
    """In a guest: send a request and continue; a guest has one at a time."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class TakeAnswer(NamedTuple):
    """In a guest: return the HttpAnswer to its request, None while there is none. Its arrival ends a `Listen` or `Sleep`."""


class DropRequest(NamedTuple):
    """In a guest: close the connection of its request."""


HALTED, CRASHED, DISCONNECTED = 0, 1, 2

Effect = (
    Sleep | Out | Err | Write | ReadStdin | Flock | Unflock | IsFlocked | RunLock | RunUnlock | RunHolder | Signal | Boot
    | AwaitGuest | PowerOff | RunInGuest | Listen | Reply | StartPoller | PollerExit | StopPoller | SendRequest
    | TakeAnswer | DropRequest
)  # fmt: skip

# A command returns its exit code, a guest how it ended. The docstring of each effect describes what its `yield` returns.
Steps = Generator[Effect, Any, int]
Substeps = Generator[Effect, Any, None]
