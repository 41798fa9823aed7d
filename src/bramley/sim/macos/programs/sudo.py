"""sudo: which user may run what as which user, and with which password; with sudo's own messages.

A password is read only if the rules require one: then it is the first line of stdin, and the rest is the program's. Nothing is
remembered between two calls, as without a terminal. `decide` does not run the program: behind SSH the server does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bramley.sim.macos import users
from bramley.sim.macos.call import Call, Result
from bramley.sim.macos.programs import sudoers

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

TRIES = 3
PROMPT = "Password:"
_NOT_FOUND = 127
_USAGE = "usage: sudo [-ESHknv] [-p prompt] [-u user] [VAR=value] [command [arg ...]]\n"
_NO_TERMINAL = (
    "sudo: a terminal is required to read the password; either use the -S option to read from standard input or configure an "
    "askpass helper\n"
)
_REQUIRED = "sudo: a password is required\n"
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


@dataclass(slots=True)
class Request:
    """The options and command of a command line."""

    argv: tuple[str, ...] = ()
    user: str = "root"
    prompt: str = PROMPT
    is_silent: bool = False
    reads_stdin: bool = False
    only_validates: bool = False
    only_forgets: bool = False


@dataclass(frozen=True, slots=True)
class Granted:
    """A program that may run, its user, and the rest of stdin; `printed` is what sudo has printed before."""

    argv: tuple[str, ...]
    user: str
    stdin: bytes
    printed: str = ""


def sudo(mac: Mac, call: Call) -> Result:
    """Run a program as another user, if that is allowed."""
    decision = decide(mac, call)
    if isinstance(decision, Result):
        return decision
    inner = replace(call, argv=decision.argv, user=decision.user, stdin=decision.stdin)
    result = mac.run(inner)
    if result.code == _NOT_FOUND and "command not found" in result.err:
        return Result(1, err=f"{decision.printed}sudo: {decision.argv[0]}: command not found\n")
    return Result(result.code, result.out, decision.printed + result.err)


def decide(mac: Mac, call: Call) -> Granted | Result:
    """Return what may run, or the result of a refusal."""
    request = parse(call.argv[1:])
    if request is None or not (request.argv or request.only_validates or request.only_forgets):
        return Result(1, err=_USAGE)
    if request.only_forgets and not request.argv:
        return Result()
    if request.user not in mac.state["users"]:
        return Result(1, err=f"sudo: unknown user {request.user}\n")
    granted = Granted(request.argv, request.user, call.stdin)
    verdict = granted if call.is_root else _allow(mac, call, request)
    if isinstance(verdict, Granted) and request.only_validates:
        return Result(err=verdict.printed)
    return verdict


def _allow(mac: Mac, call: Call, request: Request) -> Granted | Result:
    rules = sudoers.rules_for(mac, call.user)
    if mac.state["sudo"]["refused"] or not rules.may:
        return Result(1, err=f"{rules.errors}{call.user} is not in the sudoers file.\n")
    if rules.without_password:
        return Granted(request.argv, request.user, call.stdin, rules.errors)
    if request.is_silent:
        return Result(1, err=rules.errors + _REQUIRED)
    if not (request.reads_stdin or call.on_terminal):
        return Result(1, err=rules.errors + _NO_TERMINAL + _REQUIRED)
    return _authenticate(mac, call, request, printed=rules.errors)


def _authenticate(mac: Mac, call: Call, request: Request, *, printed: str) -> Granted | Result:
    """Read the password up to three times; every wrong one counts for the account's lock."""
    rest = call.stdin
    for wrong in range(TRIES):
        printed += request.prompt
        line, found, rest = rest.partition(b"\n")
        if not found and not line:
            lost = f"\nsudo: no password was provided\n{_failed_attempts(wrong)}"
            return Result(1, err=printed + lost)
        with mac.change() as state:
            password = line.decode("utf-8", "replace")
            verdict = users.check(state, call.user, password, now=mac.now())
        if verdict is users.Verdict.RIGHT:
            return Granted(request.argv, request.user, rest, printed)
        if wrong + 1 < TRIES:
            printed += "Sorry, try again.\n"
    return Result(1, err=f"{printed}\n{_failed_attempts(TRIES)}")


def _failed_attempts(wrong: int) -> str:
    if not wrong:
        return _REQUIRED
    return f"sudo: {wrong} incorrect password attempt{'s' if wrong > 1 else ''}\n"


def parse(words: tuple[str, ...]) -> Request | None:
    """Return the parsed command line; None if it is invalid."""
    request = Request()
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if not _read_option(request, word, rest):
            return None
    while rest and _SETTING.fullmatch(rest[0]):
        rest.pop(0)
    request.argv = tuple(rest)
    return request


def _read_option(request: Request, word: str, rest: list[str]) -> bool:
    """Read one word of options; False if sudo does not know it."""
    for next_index, letter in enumerate(word[1:], 2):
        if letter in "up":
            value = word[next_index:] or (rest.pop(0) if rest else "")
            if letter == "u":
                request.user = value
            else:
                request.prompt = value
            return True
        if letter not in "nSvkHE":
            return False
        request.is_silent |= letter == "n"
        request.reads_stdin |= letter == "S"
        request.only_validates |= letter == "v"
        request.only_forgets |= letter == "k"
    return len(word) > 1
