"""How `launchctl` answers what the agent asks of it; the same for both faces of the simulation, and free of imports for its shim."""

from collections.abc import Sequence
from typing import NamedTuple

LOGINWINDOW = "system/com.apple.loginwindow"
_NO_DOMAIN = 113
_USAGE = 64


class Said(NamedTuple):
    """An answer; `kicks` when loginwindow is to be restarted."""

    code: int
    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()
    kicks: bool = False


def launchctl(arguments: Sequence[str], *, is_alive: bool, as_root: bool) -> Said:
    """Answer `print gui/<uid>` and `kickstart -k system/com.apple.loginwindow`."""
    match list(arguments):
        case ["print", domain] if is_alive:
            return Said(0, (f"{domain} = {{", "\ttype = login", "\tsession = Aqua", "}"))
        case ["print", domain]:
            told = f"Could not find domain for user gui: {domain.partition('/')[2]}"
            return Said(_NO_DOMAIN, err=(told,))
        case ["kickstart", "-k", target] if target == LOGINWINDOW and as_root:
            return Said(0, kicks=True)
        case ["kickstart", *_]:
            return Said(1, err=("Could not kickstart service: 1: Operation not permitted",))
    return Said(_USAGE, err=("Unrecognized subcommand or arguments",))
