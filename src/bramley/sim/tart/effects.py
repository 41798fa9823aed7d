"""What the simulated tart asks of the world it runs in: each command, and each guest, is a generator of these effects.

Files under TART_HOME are read and written by the model itself; time, output, locks, signals and processes are the driver's.
`process` drives with real processes and real locks, `in_process` under virtual time with a table of locks.

Rules for a driver:
- A signal is delivered by throwing `Interrupted` at the next effect that waits (`Sleep`, `Flock`, `AwaitGuest`, `Ask`, `Listen`), or at the one now waiting.
- Death by SIGKILL or SIGTERM is dropping the generator. The model cleans up in no `finally`, so closing it is harmless.
- When a process ends, however it ends, its locks go with it; a guest whose tart is gone dies too, unless it `outlives`.
- Paths are `str`: `pathlib` alone would cost a call of the shim a third of its time.
"""

from collections.abc import Callable, Generator, Mapping
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
    """Write text without adding a line's end, to stdout or stderr; what `exec` passes on."""

    text: str
    is_error: bool


class ReadStdin(NamedTuple):
    """Return all of stdin as bytes."""


class Flock(NamedTuple):
    """Take the exclusive `flock` of a file or folder; return whether we have it. With `wait`, wait for it without limit."""

    path: str
    wait: bool


class Unflock(NamedTuple):
    """Give an `flock` back."""

    path: str


class IsFlocked(NamedTuple):
    """Return whether another process holds the `flock`."""

    path: str


class RunLock(NamedTuple):
    """Try the POSIX write lock of a file, tart's sign of a running VM; return whether we have it."""

    path: str


class RunUnlock(NamedTuple):
    """Lose the POSIX lock: with real locks this happens by closing any descriptor of the file, so the model never reopens it."""

    path: str


class RunHolder(NamedTuple):
    """Return the pid that holds the POSIX lock of a file, or None; our own does not count."""

    path: str


class Signal(NamedTuple):
    """Send `INT`, `USR1` or `KILL` to a process of the simulation; return whether it was there."""

    pid: int
    signal: str


class Plan(NamedTuple):
    """All that a guest is told when it is switched on; plain values only, so that it can travel to another process."""

    vm: str
    mac: str
    shares: dict[str, dict[str, Any]]  # by name: {"path": …, "read_only": …}
    outlives: bool  # a fault: it goes on when its tart is gone


class Boot(NamedTuple):
    """Start the guest as a process outside our process group; it takes over our `flock` of `slot`. Return its pid."""

    plan: Plan
    slot: str


class AwaitGuest(NamedTuple):
    """Wait for our guest's end and return its code: one of `HALTED`, `CRASHED`, `DISCONNECTED`."""


class PowerOff(NamedTuple):
    """Cut our guest's power and wait until its process is gone."""


class Answer(NamedTuple):
    """What a command in the guest said; it takes `seconds`, which the asking side waits."""

    code: int
    stdout: str
    stderr: str
    seconds: float


class Ask(NamedTuple):
    """Have the agent of a VM's guest run a command; return its Answer, or None if there is none within `seconds`."""

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
    """In a guest: answer a Request."""

    request: Request
    answer: Answer


HALTED, CRASHED, DISCONNECTED = 0, 1, 2

Effect = (
    Sleep
    | Out
    | Err
    | Write
    | ReadStdin
    | Flock
    | Unflock
    | IsFlocked
    | RunLock
    | RunUnlock
    | RunHolder
    | Signal
    | Boot
    | AwaitGuest
    | PowerOff
    | Ask
    | Listen
    | Reply
)

# A command returns its exit code, a guest how it ended. What comes back at a `yield` is said by each effect.
Steps = Generator[Effect, Any, int]
Substeps = Generator[Effect, Any, None]
