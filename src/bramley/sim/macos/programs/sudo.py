"""sudo: who may run what as whom, with which password, in sudo's own words.

A password is asked for only where the rules want one: then it is the first line of stdin, and the rest is the program's. Nothing is
remembered between two calls, as without a terminal. `decide` is apart from running, for a face that runs programs itself.
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
class Asked:
    """What a command line asks of sudo."""

    argv: tuple[str, ...] = ()
    user: str = "root"
    prompt: str = PROMPT
    is_silent: bool = False
    reads_stdin: bool = False
    only_validates: bool = False
    only_forgets: bool = False


@dataclass(frozen=True, slots=True)
class Granted:
    """A program that may run: as whom, with what is left of stdin; `told` has been printed on the way."""

    argv: tuple[str, ...]
    user: str
    stdin: bytes
    told: str = ""


def sudo(mac: Mac, call: Call) -> Result:
    """Run a program as another user, if that is allowed."""
    decision = decide(mac, call)
    if isinstance(decision, Result):
        return decision
    inner = replace(call, argv=decision.argv, user=decision.user, stdin=decision.stdin)
    said = mac.run(inner)
    if said.code == _NOT_FOUND and "command not found" in said.err:
        return Result(1, err=f"{decision.told}sudo: {decision.argv[0]}: command not found\n")
    return Result(said.code, said.out, decision.told + said.err)


def decide(mac: Mac, call: Call) -> Granted | Result:
    """Return what may run, or what sudo says instead of running it."""
    asked = parse(call.argv[1:])
    if asked is None or not (asked.argv or asked.only_validates or asked.only_forgets):
        return Result(1, err=_USAGE)
    if asked.only_forgets and not asked.argv:
        return Result()
    if asked.user not in mac.state["users"]:
        return Result(1, err=f"sudo: unknown user {asked.user}\n")
    granted = Granted(asked.argv, asked.user, call.stdin)
    verdict = granted if call.is_root else _allow(mac, call, asked)
    if isinstance(verdict, Granted) and asked.only_validates:
        return Result(err=verdict.told)
    return verdict


def _allow(mac: Mac, call: Call, asked: Asked) -> Granted | Result:
    rules = sudoers.rules_for(mac, call.user)
    if mac.state["sudo"]["refused"] or not rules.may:
        return Result(1, err=f"{rules.told}{call.user} is not in the sudoers file.\n")
    if rules.without_password:
        return Granted(asked.argv, asked.user, call.stdin, rules.told)
    if asked.is_silent:
        return Result(1, err=rules.told + _REQUIRED)
    if not (asked.reads_stdin or call.on_terminal):
        return Result(1, err=rules.told + _NO_TERMINAL + _REQUIRED)
    return _authenticate(mac, call, asked, told=rules.told)


def _authenticate(mac: Mac, call: Call, asked: Asked, *, told: str) -> Granted | Result:
    """Ask for the password up to three times; every wrong one counts for the account's lock."""
    rest = call.stdin
    for wrong in range(TRIES):
        told += asked.prompt
        line, found, rest = rest.partition(b"\n")
        if not found and not line:
            lost = f"\nsudo: no password was provided\n{_plural(wrong)}"
            return Result(1, err=told + lost)
        with mac.change() as state:
            password = line.decode("utf-8", "replace")
            verdict = users.check(state, call.user, password, now=mac.now())
        if verdict is users.Verdict.RIGHT:
            return Granted(asked.argv, asked.user, rest, told)
        if wrong + 1 < TRIES:
            told += "Sorry, try again.\n"
    return Result(1, err=f"{told}\n{_plural(TRIES)}")


def _plural(wrong: int) -> str:
    if not wrong:
        return _REQUIRED
    return f"sudo: {wrong} incorrect password attempt{'s' if wrong > 1 else ''}\n"


def parse(words: tuple[str, ...]) -> Asked | None:
    """Return what a command line asks for; None for one that sudo has a usage line for."""
    asked = Asked()
    left = list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        if word == "--":
            break
        if not _take(asked, word, left):
            return None
    while left and _SETTING.fullmatch(left[0]):
        left.pop(0)
    asked.argv = tuple(left)
    return asked


def _take(asked: Asked, word: str, left: list[str]) -> bool:
    """Take one word of options; False if sudo does not know it."""
    for place, letter in enumerate(word[1:], 2):
        if letter in "up":
            value = word[place:] or (left.pop(0) if left else "")
            if letter == "u":
                asked.user = value
            else:
                asked.prompt = value
            return True
        if letter not in "nSvkHE":
            return False
        asked.is_silent |= letter == "n"
        asked.reads_stdin |= letter == "S"
        asked.only_validates |= letter == "v"
        asked.only_forgets |= letter == "k"
    return len(word) > 1
