"""`bramley sim mac`: a simulated Mac behind a real SSH server, for people and for programs that shape Macs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bramley.cli.options import Format, Level, LogFormat, LogLevel

if TYPE_CHECKING:
    from bramley.app.sim_mac import Served

LISTEN = "127.0.0.1:2222"


Root = Annotated[
    Path,
    typer.Option(
        "--root",
        help="Folder that is the Mac's disk: made as a bare Mac if empty, switched on again if not.",
        metavar="FOLDER",
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        help="Address of its SSH server; port 0 takes a free one.",
        metavar="HOST:PORT",
    ),
]
User = Annotated[
    str, typer.Option("--user", help="Name of its user, who may use sudo.", metavar="NAME")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="File with the user's password.",
        show_default="a random one, told where it is kept",
        metavar="FILE",
    ),
]
AuthorizedKey = Annotated[
    Path | None,
    typer.Option(
        "--authorized-key",
        help="Public key that the user lets in from the start.",
        show_default="none",
        metavar="FILE",
    ),
]
Ready = Annotated[
    bool,
    typer.Option(
        "--ready/--bare",
        help="With sudo that asks for no password and the user logged in at the console, or as a provider hands it over.",
    ),
]
Version = Annotated[str, typer.Option("--macos", help="Its version of macOS.", metavar="VERSION")]
BootSeconds = Annotated[
    float, typer.Option("--boot-seconds", help="How long it is gone when it restarts.", min=0.1)
]


def mac(  # noqa: PLR0913 - one parameter a flag
    *,
    root: Root,
    listen: Listen = LISTEN,
    user: User = "m1",
    password_file: PasswordFile = None,
    authorized_key: AuthorizedKey = None,
    ready: Ready = False,
    macos: Version = "26.3",
    boot_seconds: BootSeconds = 10.0,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
) -> None:
    """Run a simulated Mac behind a real SSH server, with a folder for its disk.

    Shell runs for real in it, and macOS' own programs answer from a model. Everything that runs on it ends with it. Needs Linux with bubblewrap; as root its files have real owners.

    \b
    Examples:
      bramley sim mac --root ./mac-1
      ssh -p 2222 m1@127.0.0.1 sw_vers
      bramley sim mac --root ./mac-2 --listen 127.0.0.1:0 --authorized-key ~/.ssh/id_ed25519.pub --ready
      echo '[{"do": "cut-after", "match": "*launchctl*", "times": 1}]' > ./mac-1/.mac/faults.json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import sim_mac
    from bramley.app.listening import Address
    from bramley.base import log

    log.configure(level=log_level, form=log_format)
    settings = sim_mac.Settings(
        root=root,
        listen=Address.parse(listen),
        user=user,
        password_file=password_file,
        authorized_key=authorized_key,
        is_ready=ready,
        macos_version=macos,
        boot_seconds=boot_seconds,
    )
    sim_mac.run(settings, _tell)


def _tell(served: Served) -> None:
    address = served.address
    typer.echo(
        f"A simulated Mac runs; its disk is {served.root}\n"
        f"  log in     ssh -p {address.port} {served.user}@{address.host}\n"
        f"  password   in {served.password_file}\n"
        f"  host key   {served.fingerprint}\n"
        f"  faults     write them to {served.faults}\n"
        "Stop it with Ctrl-C."
    )
