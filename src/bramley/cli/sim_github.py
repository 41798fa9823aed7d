"""`bramley sim github`: serve a simulated GitHub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bramley.cli.options import Format, Level, LogFormat, LogLevel

if TYPE_CHECKING:
    from bramley.app.sim_github import Served

LISTEN = "127.0.0.1:8088"
REPOSITORIES = ["acme/app"]


Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        help="Address of the HTTP server; port 0 selects a free port.",
        metavar="HOST:PORT",
    ),
]
PrivateKeyFile = Annotated[
    Path,
    typer.Option(
        "--private-key-file",
        help="Private key of the GitHub App as PEM; a missing file is created.",
        metavar="FILE",
    ),
]
AppId = Annotated[str, typer.Option("--app-id", help="ID of the GitHub App.", metavar="ID")]
Repositories = Annotated[
    list[str],
    typer.Option(
        "--repository",
        help="A repository of an organisation that has installed the App; may be repeated.",
        metavar="ORGANISATION/NAME",
    ),
]
WebhookUrl = Annotated[
    str,
    typer.Option(
        "--webhook-url",
        help="Where webhooks are sent; https, or http on a loopback address.",
        show_default="no webhooks",
        metavar="URL",
    ),
]
WebhookSecretFile = Annotated[
    Path | None,
    typer.Option(
        "--webhook-secret-file",
        help="File with the secret that signs webhooks.",
        show_default="none",
        metavar="FILE",
    ),
]


def github(
    *,
    private_key_file: PrivateKeyFile,
    listen: Listen = LISTEN,
    app_id: AppId = "1",
    repository: Repositories = REPOSITORIES,
    webhook_url: WebhookUrl = "",
    webhook_secret_file: WebhookSecretFile = None,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
) -> None:
    """Serve a simulated GitHub with one App, and organisations that have installed it.

    It verifies JWTs and tokens, registers runners, runs simulated jobs on any runner with matching labels, and sends signed webhooks. Its own calls under /sim need no credential: queue a job, start a runner, add a fault.

    \b
    Examples:
      bramley sim github --private-key-file ./app.pem
      bramley sim github --private-key-file ./app.pem --webhook-url http://127.0.0.1:8080/webhooks/github --webhook-secret-file ./webhook-secret
      curl --json '{"repository": "acme/app", "labels": ["macos"], "seconds": 5}' http://127.0.0.1:8088/sim/jobs
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import sim_github
    from bramley.app.listen_address import Address
    from bramley.base import log

    log.configure(level=log_level, form=log_format)
    settings = sim_github.Settings(
        listen=Address.parse(listen),
        private_key_file=private_key_file.expanduser(),
        app_id=app_id,
        repositories=tuple(repository),
        webhook_url=webhook_url,
        webhook_secret_file=webhook_secret_file and webhook_secret_file.expanduser(),
    )
    sim_github.run(settings, _print)


def _print(served: Served) -> None:
    settings = served.settings
    installed = ", ".join(f"{number} in {name}" for name, number in served.installations.items())
    typer.echo(
        f"Simulated GitHub is running at {served.url}\n"
        f"  App            {settings.app_id}\n"
        f"  installation   {installed}\n"
        f"  private key    in {settings.private_key_file}\n"
        f"  repository     {', '.join(settings.repositories)}\n"
        f"  webhooks       {settings.webhook_url or 'none'}\n"
        f"  queue a job    POST {served.url}/sim/jobs\n"
        "Stop it with Ctrl-C."
    )
