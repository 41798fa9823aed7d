"""dscl: the directory of local users, as far as steps use it: password checks and records.

Exit codes are the directory's error numbers, of which a shell sees the last eight bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bramley.sim.macos import users
from bramley.sim.macos.call import Call, Result
from bramley.sim.macos.users import Verdict

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

PROMPT = "Password: "
_NODES = (".", "/Local/Default")
_USAGE = Result(64, err="dscl: the simulated Mac does not know this command\n")
_ERRORS = {
    Verdict.WRONG: (14090, "eDSAuthFailed"),
    Verdict.LOCKED: (14167, "eDSAuthAccountDisabled"),
    Verdict.UNKNOWN: (14136, "eDSRecordNotFound"),
}


def dscl(mac: Mac, call: Call) -> Result:
    """Run `-authonly`, `-read` and `-list`."""
    if len(call.argv) < 3 or call.argv[1] not in _NODES:
        return _USAGE
    match [call.argv[2].lstrip("-"), *call.argv[3:]]:
        case ["authonly", user]:
            return _read_password(mac, call, user)
        case ["authonly", user, password]:
            return _check(mac, user, password)
        case ["read", path, *keys] if path.startswith("/Users/"):
            return _read(mac, path.removeprefix("/Users/"), keys)
        case ["list", "/Users"]:
            return Result(out="".join(f"{name}\n" for name in sorted(mac.state["users"])))
    return _USAGE


def _read_password(mac: Mac, call: Call, user: str) -> Result:
    """Read the password from the terminal or from stdin; without a terminal the prompt goes to stderr."""
    password = call.stdin.partition(b"\n")[0].decode("utf-8", "replace")
    result = _check(mac, user, password)
    if call.on_terminal:
        # Typed input is not echoed; the newline is printed by the program.
        return Result(result.code, f"{PROMPT}\n{result.out}", result.err)
    return Result(result.code, result.out, PROMPT + result.err)


def _check(mac: Mac, user: str, password: str) -> Result:
    with mac.change() as state:
        verdict = users.check(state, user, password, now=mac.now())
    if verdict is Verdict.RIGHT:
        return Result()
    number, name = _ERRORS[verdict]
    out = f"Authentication for node /Local/Default failed. (-{number}, {name})\n"
    return _error(verdict, out=out)


def _error(verdict: Verdict, *, out: str = "") -> Result:
    number, name = _ERRORS[verdict]
    return Result(number % 256, out, f"<dscl_cmd> DS Error: -{number} ({name})\n")


def _read(mac: Mac, user: str, keys: list[str]) -> Result:
    state = mac.state
    record = state["users"].get(user)
    if record is None:
        return _error(Verdict.UNKNOWN)
    values = {
        "NFSHomeDirectory": record["home"],
        "PrimaryGroupID": users.GROUPS[record["groups"][0]],
        "RecordName": user,
        "UniqueID": record["uid"],
        "UserShell": "/bin/sh" if user == "root" else "/bin/zsh",
    }
    lines = [
        f"{key}: {values[key]}" if key in values else f"No such key: {key}"
        for key in keys or values
    ]
    return Result(out="".join(f"{line}\n" for line in lines))
