"""The SSH options that all commands of `bramley host` share, added to a command by a decorator."""

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
from bramley.cli.options import data_dir, duration, home

if TYPE_CHECKING:
    from bramley.app.ssh_options import SshOptions
    from bramley.base.secret import Secret

KNOWN_HOSTS = "known_hosts"
TERMINAL = "/dev/tty"
# The keys that ssh tries by default.
_OWN_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")

Target = Annotated[
    str,
    typer.Argument(
        help="The Mac: user@host or user@host:port; the default user is m1.", metavar="TARGET"
    ),
]
Identity = Annotated[
    list[Path] | None,
    typer.Option(
        "--identity",
        "-i",
        help="Private key to log in with; repeatable.",
        show_default="the keys of the SSH agent, then those in ~/.ssh",
        metavar="FILE",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="File with the user's password, for the login, sudo and automatic login.",
        metavar="FILE",
    ),
]
AskPassword = Annotated[
    bool, typer.Option("--ask-password", help="Prompt for the user's password, without echo.")
]
Jump = Annotated[
    str,
    typer.Option("--jump", "-J", help="Jump host, in the form of TARGET.", metavar="TARGET"),
]
KnownHostsFile = Annotated[
    Path | None,
    typer.Option(
        "--known-hosts",
        envvar="BRAMLEY_KNOWN_HOSTS",
        help="File of host keys; a key is accepted at the first connection and required from then on.",
        show_default="known_hosts in the data folder",
        metavar="FILE",
    ),
]
AcceptNewHostKey = Annotated[
    bool,
    typer.Option(
        "--accept-new-host-key",
        help="Accept the host key that the Mac presents now, for a Mac that was reinstalled.",
    ),
]
ConnectTimeout = Annotated[
    str,
    typer.Option(
        "--connect-timeout",
        help="How long to wait for the Mac's SSH server, such as 30s or 5m.",
        metavar="TIME",
    ),
]


def over_ssh(command: Callable[..., None]) -> Callable[..., None]:
    """Add the SSH options to a command; it is called with an SshOptions and its own options."""

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        connection = {name: values.pop(name) for name in inspect.signature(_ssh_options).parameters}
        command(_ssh_options(**connection), **values)

    hints = {**get_type_hints(command, include_extras=True, localns={"SshOptions": object})}
    own = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "ssh_options"
    ]
    shared = list(inspect.signature(_ssh_options).parameters.values())
    # The target comes first, then the options of the command, then those of the connection.
    parameters = [shared[0], *own, *shared[1:]]
    hints |= get_type_hints(_ssh_options, include_extras=True, localns={"SshOptions": object})
    wrapper.__annotations__ = {parameter.name: hints[parameter.name] for parameter in parameters}
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
            for parameter in parameters
        ]
    )
    return wrapper


def _ssh_options(
    *,
    target: Target,
    identity: Identity = None,
    password_file: PasswordFile = None,
    ask_password: AskPassword = False,
    jump: Jump = "",
    known_hosts: KnownHostsFile = None,
    accept_new_host_key: AcceptNewHostKey = False,
    connect_timeout: ConnectTimeout = "30s",
) -> SshOptions:
    from bramley.app.ssh_options import SshOptions

    return SshOptions(
        target=target,
        user=machines.DEFAULT_SSH_USER,
        known_hosts=known_hosts or data_dir() / KNOWN_HOSTS,
        identities=tuple(identity or _own_keys()),
        agent="" if identity else os.environ.get("SSH_AUTH_SOCK", ""),
        are_explicit=bool(identity),
        password=password(password_file, ask=ask_password, target=target),
        jump=jump,
        accept_new_host_key=accept_new_host_key,
        connect_timeout=duration(connect_timeout, option="--connect-timeout"),
    )


def password(file: Path | None, *, ask: bool, target: str) -> Secret | None:
    """Return the user's password from a file or a prompt; None if neither was requested."""
    from bramley.app import config_files
    from bramley.base.secret import Secret

    if file is not None:
        return config_files.secret(file, field="--password-file", holds="the password")
    if not ask:
        return None
    if not _has_terminal():
        raise BadConfiguration(
            f"{target}: there is no terminal to prompt for the password; use --password-file"
        )
    return Secret(typer.prompt(f"Password of {target}", hide_input=True, err=True))


def _has_terminal() -> bool:
    """Return whether there is a terminal, even if standard input is redirected."""
    try:
        with Path(TERMINAL).open("rb"):
            return True
    except OSError:
        return sys.stdin.isatty()


def _own_keys() -> list[Path]:
    folder = home()
    paths = [folder / ".ssh" / name for name in _OWN_KEYS] if folder else []
    return [path for path in paths if path.is_file()]
