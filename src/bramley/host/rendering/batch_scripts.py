"""A batch as shell: consecutive commands in one script, and then the probes; and the parser of its progress.

The commands are a program of function calls that is sent as input, so their values and contents are neither in the script nor in the
process table. The progress is on standard output: a line with the token before and after each command. The same line on standard
error precedes the output of the command. The shell checks the claim before each command and stops at the first one that fails.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bramley.api.names import host as names
from bramley.host.claim import Guard
from bramley.host.commands import Batchable, Run, Wait, Write
from bramley.host.rendering import command_scripts, probe_scripts
from bramley.host.rendering.probe_scripts import ProbeScript
from bramley.host.rendering.script import (
    SEAL,
    Script,
    as_root,
    as_user,
    checked_program,
    command_line,
    compose,
    encode,
    fragment,
    quote,
)

CLAIM = "claim"
_FUNCTIONS = ("fail", "read_input", "process_timeout", "install_file", "digest", "probe", "claim")
_COMMANDS = (
    "make_folder",
    "make_link",
    "rename",
    "remove",
    "write_seal",
    "write_file",
    "run_program",
)
# Prints its own name, the token, before the program.
_WITH_MARK = 'printf "%s\\n" "$0"; exec "$@"'


def render(
    commands: Sequence[Batchable],
    *,
    token: str,
    user: str,
    guard: Guard | None = None,
    then: ProbeScript | None = None,
) -> Script:
    """Return commands as one script; `user` is the login user, and `then` the probes that follow if all commands succeed."""
    root = any(map(needs_root, commands)) or (guard is not None and guard.acquires)
    program = encode("".join(_program(commands, token, user, guard, root=root)).encode())
    claim = (names.CLAIM, guard.line) if guard else ("", "")
    arguments = (token, str(len(program.reveal())), *claim)
    text = compose(SEAL, *map(fragment, _FUNCTIONS), *map(_function, _COMMANDS), fragment("batch"))
    line = as_root(text, *arguments) if root else as_user(text, *arguments)
    if then is not None:
        # The probes run as the user, in the shell that has started the batch.
        line = as_user(f"{line.removeprefix('exec ')} || exit\n{then.text}")
    return Script(line=line, token=token, input=program)


def needs_root(command: Batchable) -> bool:
    """Return whether a command is executed as root."""
    return (
        command.probe.as_root if isinstance(command, Wait) else command_scripts.needs_root(command)
    )


def fits(script: Script) -> bool:
    """Return whether a script is short enough for one command line."""
    return len(script.line) <= probe_scripts.MAX_LINE


def _function(name: str) -> str:
    # A subshell for each command: fragments set variables and exit.
    return f"do_{name}() (\n{fragment(name)})\n"


def _program(
    commands: Sequence[Batchable], token: str, user: str, guard: Guard | None, *, root: bool
) -> Iterator[str]:
    if guard and root:
        yield f"announce {guard.epoch}\n"
    if guard and guard.acquires:
        expected = base64.b64encode(guard.expected or b"").decode()
        yield f"expect_claim {quote(expected)}\n"
        # Without `begin`, which requires the claim.
        yield f"printf '\\n@%s start {CLAIM}\\n' \"$token\" >&2\n"
        yield f"write_claim\nwait_for_others {guard.epoch}\n"
    for number, command in enumerate(commands):
        login = user if root and not needs_root(command) else ""
        call = _wait(command, token, login) if isinstance(command, Wait) else ""
        accepted = command.accepted_codes if isinstance(command, Run) else (0,)
        codes = " ".join(map(str, accepted))
        ignores = "yes" if getattr(command, "ignore_failure", False) else "no"
        yield f"begin {number}\n{call or _call(command, token, login)}"  # type: ignore[arg-type]
        yield f'finish {number} "$?" {quote(codes)} {ignores}\n'


def _call(command: command_scripts.Rendered, token: str, login: str = "") -> str:
    parts = command_scripts.parts_of(command)
    arguments, stdin = parts.arguments, parts.stdin
    if login:
        arguments = (arguments[0], *_as_login_user(login), *arguments[1:])
    if stdin is None:
        return f"{command_line(f'do_{parts.name}', token, *arguments)} >/dev/null\n"
    # The length of the input comes after the timeout.
    words = command_line(f"do_{parts.name}", token, arguments[0], "-", *arguments[1:])
    return f"input={quote(stdin.reveal())}\n{words} >/dev/null\n"


def _wait(command: Wait, token: str, login: str) -> str:
    probe, program = command.probe, checked_program(command.probe.argv)
    mark = ""
    if login:
        mark = token
        program = (*_as_login_user(login), "/bin/sh", "-c", _WITH_MARK, token, *program)
    seconds = str(max(1, round(command.timeout.total_seconds())))
    limit = str(max(1, round(probe.timeout.total_seconds())))
    interval = f"{command.interval.total_seconds():g}"
    size = str(probe.max_bytes + len(mark))
    values = (seconds, interval, str(command.code), mark, command.text, limit, size)
    return command_line("wait_for", *values, *program) + "\n"


def _as_login_user(login: str) -> tuple[str, ...]:
    return ("sudo", "-n", "-H", "-u", login, "--")


def timeout(command: Batchable) -> timedelta:
    """Return how long a command may take; the shell on the Mac stops it a little later."""
    if isinstance(command, Wait):
        return command.timeout + command.probe.timeout + timedelta(seconds=10)
    return command.timeout if isinstance(command, Run | Write) else timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a batch has reported: the commands that have begun, exit codes of those that have ended, and the claim that refused it."""

    started: int
    codes: dict[int, int]
    refused: bytes | None = None

    @property
    def is_refused(self) -> bool:
        """Return whether another run has claimed the Mac."""
        return self.refused is not None


def parse_progress(output: bytes, *, token: str) -> Progress:
    """Return the progress in an output."""
    mark = re.escape(b"@" + token.encode())
    starts = re.findall(rb"^" + mark + rb" start (\d+)\r?$", output, re.MULTILINE)
    ends = re.findall(rb"^" + mark + rb" end (\d+) (\d+)\r?$", output, re.MULTILINE)
    refused = re.search(rb"^" + mark + rb" refused (\S*)\r?$", output, re.MULTILINE)
    return Progress(
        len(starts),
        {int(number): int(code) for number, code in ends},
        base64.b64decode(refused[1]) if refused else None,
    )


def error_output(errors: bytes, number: int, *, token: str) -> bytes:
    """Return the error output of one command, or of the claim if that failed; everything if its beginning is lost."""
    starts = re.compile(rb"\n?^@" + token.encode() + rb" start (\w+)\n", re.MULTILINE)
    texts = starts.split(errors)
    segments = dict(zip(texts[1::2], texts[2::2], strict=True))
    other = segments.get(CLAIM.encode(), b"") if segments else texts[0]
    return segments.get(str(number).encode(), other)
