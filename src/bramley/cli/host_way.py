"""How the commands of `bramley host` reach a Mac: the options that all of them share, given to a command by a decorator."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from bramley.api.names import machines
from bramley.base.errors import BadConfiguration
from bramley.cli.agent_access import duration
from bramley.cli.options import data_dir, home

if TYPE_CHECKING:
    from bramley.app.hosts import Way
    from bramley.base.secret import Secret

KNOWN_HOSTS = "known_hosts"
TERMINAL = "/dev/tty"
# The keys that ssh tries by itself.
_OWN_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")

Target = Annotated[
    str,
    typer.Argument(
        help="The Mac: user@host or user@host:port; the user is m1 if not given.", metavar="TARGET"
    ),
]
Identity = Annotated[
    list[Path] | None,
    typer.Option(
        "--identity",
        "-i",
        help="Private key to log in with; may be given several times.",
        show_default="the SSH agent's keys, then your own",
        metavar="FILE",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="File that holds the user's password, for the login, sudo and automatic login.",
        metavar="FILE",
    ),
]
AskPassword = Annotated[
    bool, typer.Option("--ask-password", help="Ask for the user's password, without echo.")
]
Jump = Annotated[
    str,
    typer.Option("--jump", "-J", help="Host to go through, as TARGET.", metavar="TARGET"),
]
KnownHostsFile = Annotated[
    Path | None,
    typer.Option(
        "--known-hosts",
        envvar="BRAMLEY_KNOWN_HOSTS",
        help="File that keeps the host keys, each trusted at first contact and required ever after.",
        show_default="known_hosts in the data folder",
        metavar="FILE",
    ),
]
TrustAgain = Annotated[
    bool,
    typer.Option(
        "--trust-again",
        help="Trust the host key that the Mac shows now, after you have reinstalled it.",
    ),
]
Patience = Annotated[
    str,
    typer.Option(
        "--patience",
        help="How long to wait for the Mac's SSH server, such as 30s or 5m.",
        metavar="TIME",
    ),
]


def over_ssh(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a connection; it is called with the way they describe, and its own."""

    @functools.wraps(command)
    def called(**given: Any) -> None:
        connection = {name: given.pop(name) for name in inspect.signature(_way).parameters}
        command(_way(**connection), **given)

    hints = {**get_type_hints(command, include_extras=True, localns={"Way": object})}
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "way"]
    shared = list(inspect.signature(_way).parameters.values())
    # The Mac comes first, then what is special of the command, then how the Mac is reached.
    every = [shared[0], *own, *shared[1:]]
    hints |= get_type_hints(_way, include_extras=True, localns={"Way": object})
    called.__annotations__ = {each.name: hints[each.name] for each in every}
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[each.name])
            for each in every
        ]
    )
    return called


def _way(
    *,
    target: Target,
    identity: Identity = None,
    password_file: PasswordFile = None,
    ask_password: AskPassword = False,
    jump: Jump = "",
    known_hosts: KnownHostsFile = None,
    trust_again: TrustAgain = False,
    patience: Patience = "30s",
) -> Way:
    from bramley.app.hosts import Way

    return Way(
        target=target,
        user=machines.DEFAULT_SSH_USER,
        known_hosts=known_hosts or data_dir() / KNOWN_HOSTS,
        identities=tuple(identity or _own_keys()),
        agent="" if identity else os.environ.get("SSH_AUTH_SOCK", ""),
        are_chosen=bool(identity),
        password=password(password_file, ask=ask_password, target=target),
        jump=jump,
        trust_again=trust_again,
        patience=duration(patience, option="--patience"),
    )


def password(file: Path | None, *, ask: bool, target: str) -> Secret | None:
    """Return the user's password from a file or from the person in front; None if it is not wanted."""
    from bramley.app import host_config
    from bramley.base.secret import Secret

    if file is not None:
        return host_config.secret(file, field="--password-file", holds="the password")
    if not ask:
        return None
    if not _somebody_is_there():
        raise BadConfiguration(
            f"{target}: there is no terminal to ask for the password on; give it with --password-file"
        )
    return Secret(typer.prompt(f"Password of {target}", hide_input=True, err=True))


def _somebody_is_there() -> bool:
    """Tell whether there is a terminal, also for a command whose input is something else."""
    try:
        with Path(TERMINAL).open("rb"):
            return True
    except OSError:
        return sys.stdin.isatty()


def _own_keys() -> list[Path]:
    folder = home()
    places = [folder / ".ssh" / name for name in _OWN_KEYS] if folder else []
    return [place for place in places if place.is_file()]
