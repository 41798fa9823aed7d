"""The guest's agent: it runs the few commands that hosts ask of a guest, and those that a script defines."""

import os
from collections.abc import Mapping
from typing import Any

from bramley.api.names import guest as names
from bramley.sim.tart.effects import Answer, Plan, Request

_KIB_OF_DISK = 100_000_000
_LONGEST = 1 << 20


def is_shutdown(argv: tuple[str, ...]) -> bool:
    """Tell whether a command ends the guest."""
    return any(_word(each) in {"shutdown", "halt", "poweroff"} for each in argv[:3])


def _word(path: str) -> str:
    return path.rpartition("/")[2]


def answer(script: Mapping[str, Any], request: Request, address: str | None, plan: Plan) -> Answer:
    """Run a command."""
    argv = request.argv
    if (known := script["commands"].get(" ".join(argv))) is not None:
        return Answer(**{"code": 0, "stdout": "", "stderr": "", "seconds": 0.0, **known})
    if is_shutdown(argv):
        return _said("")
    match _word(argv[0]), list(argv[1:]):
        case "df", _:
            return _said(_df(script["disk_percent"]))
        case "address", []:
            return _said(address or "")
        case "hostname", []:
            return _said(f"{plan.vm}\n")
        case "cat", [path]:
            return _cat(path, plan)
        case _:
            return _of_shell(request)


def _of_shell(request: Request) -> Answer:
    match _word(request.argv[0]), list(request.argv[1:]):
        case ("true" | "false") as word, _:
            return Answer(0 if word == "true" else 1, "", "", 0.0)
        case "echo", words:
            return _said(" ".join(words) + "\n")
        case "cat", []:
            return _said(request.stdin)
        case "sleep", [seconds]:
            return Answer(0, "", "", float(seconds))
        case "sh", ["-c", command] if command.startswith("exit "):
            return Answer(int(command.split()[1]), "", "", 0.0)
        case name, _:
            return Answer(127, "", f"{name}: command not found\n", 0.0)


def _said(stdout: str) -> Answer:
    return Answer(0, stdout, "", 0.0)


def _df(percent: float) -> str:
    """Return macOS' table: the capacity column comes before that of inodes."""
    used = int(_KIB_OF_DISK * percent / 100)
    return (
        "Filesystem 1024-blocks     Used Available Capacity iused ifree %iused  Mounted on\n"
        f"/dev/disk3s1s1 {_KIB_OF_DISK} {used} {_KIB_OF_DISK - used} {percent:g}% 425798 9999999 4% /\n"
    )


def _cat(path: str, plan: Plan) -> Answer:
    """Read a file of a share, the only ones that a simulated guest has."""
    share, _, file = path.removeprefix(names.SHARES_ROOT + "/").partition("/")
    if path.startswith(names.SHARES_ROOT) and share in plan.shares:
        try:
            with open(os.path.join(plan.shares[share]["path"], file), encoding="utf-8") as opened:
                return _said(opened.read(_LONGEST))
        except OSError:
            return Answer(1, "", f"cat: {path}: No such file or directory\n", 0.0)
    return Answer(1, "", f"cat: {path}: No such file or directory\n", 0.0)
