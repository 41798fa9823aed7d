"""`bramley sim mac`: run a simulated Mac behind a real SSH server."""

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
        help="Folder with the disk of the Mac; a bare Mac is created in an empty folder.",
        metavar="FOLDER",
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        help="Address of the SSH server; port 0 selects a free port.",
        metavar="HOST:PORT",
    ),
]
User = Annotated[
    str, typer.Option("--user", help="Name of the user, who may use sudo.", metavar="NAME")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="File with the password of the user.",
        show_default="a random password",
        metavar="FILE",
    ),
]
AuthorizedKey = Annotated[
    Path | None,
    typer.Option(
        "--authorized-key",
        help="Public key file for the user's authorized_keys.",
        show_default="none",
        metavar="FILE",
    ),
]
Ready = Annotated[
    bool,
    typer.Option(
        "--ready/--bare",
        help="Start prepared, with passwordless sudo and the user logged in at the console, or bare as delivered by a provider.",
    ),
]
Version = Annotated[str, typer.Option("--macos", help="Version of macOS.", metavar="VERSION")]
BootSeconds = Annotated[
    float, typer.Option("--boot-seconds", help="Duration of a restart.", min=0.1)
]


def mac(  # noqa: PLR0913 - one parameter per flag
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
    """Run a simulated Mac behind a real SSH server, with its disk in a folder.

    Shell commands run for real; the programs of macOS are simulated. All processes on the Mac end with it. Needs Linux with bubblewrap; as root, its files have real owners.

    \b
    Examples:
      bramley sim mac --root ./mac-1
      ssh -p 2222 m1@127.0.0.1 sw_vers
      bramley sim mac --root ./mac-2 --listen 127.0.0.1:0 --authorized-key ~/.ssh/id_ed25519.pub --ready
      echo '[{"do": "cut-after", "match": "*launchctl*", "times": 1}]' > ./mac-1/.mac/faults.json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import sim_mac
    from bramley.app.listen_address import Address
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
    sim_mac.run(settings, _print)


def _print(served: Served) -> None:
    address = served.address
    typer.echo(
        f"Simulated Mac is running; its disk is {served.root}\n"
        f"  log in     ssh -p {address.port} {served.user}@{address.host}\n"
        f"  password   in {served.password_file}\n"
        f"  host key   {served.fingerprint}\n"
        f"  faults     configured in {served.faults}\n"
        "Stop it with Ctrl-C."
    )
