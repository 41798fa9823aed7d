"""`bramley sim scaleway`: serve a simulated Scaleway with simulated Macs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bramley.cli.options import Format, Level, LogFormat, LogLevel

if TYPE_CHECKING:
    from bramley.app.sim_scaleway import Served

LISTEN = "127.0.0.1:8090"
PROJECT = "11111111-1111-4111-8111-111111111111"
_SHOWN_SERVERS = 5


Root = Annotated[
    Path,
    typer.Option("--root", help="Folder with the disks of the Macs.", metavar="FOLDER"),
]
SecretKeyFile = Annotated[
    Path,
    typer.Option(
        "--secret-key-file",
        help="File with the secret key of the project; a missing file is created.",
        metavar="FILE",
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        help="Address of the HTTP server; port 0 selects a free port.",
        metavar="HOST:PORT",
    ),
]
Servers = Annotated[
    int, typer.Option("--servers", help="How many servers are ready at the start.", metavar="N")
]
Type = Annotated[str, typer.Option("--type", help="Type of these servers.", metavar="TYPE")]
Builders = Annotated[
    int,
    typer.Option(
        "--builders",
        help="How many of these servers, the last ones, are installed with Xcode and Homebrew.",
        metavar="N",
    ),
]
BuilderType = Annotated[
    str,
    typer.Option(
        "--builder-type", help="Type of the builders; by default that of --type.", metavar="TYPE"
    ),
]
GitHubUrl = Annotated[
    str,
    typer.Option(
        "--github-url",
        help="URL of a simulated GitHub at which the Macs register runners.",
        metavar="URL",
    ),
]
Zone = Annotated[str, typer.Option("--zone", help="Zone of these servers.", metavar="ZONE")]
ProjectId = Annotated[
    str, typer.Option("--project-id", help="ID of the project, a UUID.", metavar="ID")
]
SshPort = Annotated[
    int,
    typer.Option(
        "--ssh-port",
        help="Port of the SSH servers of all Macs, each on its own loopback address; 0 selects a free port.",
        metavar="PORT",
    ),
]
Speed = Annotated[
    float,
    typer.Option(
        "--speed",
        help="How much faster than at Scaleway orders, reinstallations and reboots are.",
        metavar="FACTOR",
    ),
]


def scaleway(  # noqa: PLR0913 - one parameter per flag
    *,
    root: Root,
    secret_key_file: SecretKeyFile,
    listen: Listen = LISTEN,
    servers: Servers = 3,
    type: Type = "M2-L",
    builders: Builders = 0,
    builder_type: BuilderType = "",
    github_url: GitHubUrl = "",
    zone: Zone = "fr-par-1",
    project_id: ProjectId = PROJECT,
    ssh_port: SshPort = 2222,
    speed: Speed = 60.0,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
) -> None:
    """Serve a simulated Scaleway whose servers are simulated Macs behind SSH.

    It answers the calls of Scaleway's SDK about Apple silicon, SSH keys and private networks. Its own calls under /sim need no credential: show the state, add servers, seal a password, add a fault. Servers are kept in memory, and the disks of their Macs are erased at each start. Needs Linux with bubblewrap.

    \b
    Examples:
      bramley sim scaleway --root ./macs --secret-key-file ./secret-key --servers 5 --speed 1
      curl --json '{"kind": "status", "status": 503, "path": "*/reinstall"}' http://127.0.0.1:8090/sim/faults
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    values = {**locals()}
    from bramley.app import sim_scaleway
    from bramley.app.listen_address import Address
    from bramley.base import log

    log.configure(level=values.pop("log_level"), form=values.pop("log_format"))
    values |= {"listen": Address.parse(listen)}
    values |= {name: values[name].expanduser() for name in ("root", "secret_key_file")}
    sim_scaleway.run(sim_scaleway.Settings(**values), _print)


def _print(served: Served) -> None:
    from bramley.sim.scaleway.scaleway import ACCESS_KEY

    settings, servers = served.settings, served.servers
    shown = "".join(
        f"  {'builder' if each.is_builder else 'server':<14} {each.name} {each.type} {each.ip} {each.id}\n"
        for each in servers[:_SHOWN_SERVERS]
    )
    others = len(servers) - _SHOWN_SERVERS
    more = f"  and {others} more\n" if others > 0 else ""
    typer.echo(
        f"Simulated Scaleway is running at {served.url}\n"
        f"  project        {settings.project_id}\n"
        f"  zone           {settings.zone}\n"
        f"  access key     {ACCESS_KEY}\n"
        f"  secret key     in {settings.secret_key_file}\n"
        f"{shown}{more}"
        f"  SSH            port {served.ssh_port} of the servers' addresses\n"
        f"  disks          in {settings.root}\n"
        f"  show the state GET {served.url}/sim/state\n"
        "Stop it with Ctrl-C."
    )
