"""`bramley dispatch`: serve GitHub jobs to the runners of pools; its subcommand backs up the queue. Secrets come from files only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bramley.api.names import flags, groups
from bramley.base.errors import BadConfiguration
from bramley.cli.options import (
    Context,
    Format,
    Kubeconfig,
    Level,
    LogFormat,
    LogLevel,
    ShowSettings,
    refuse_flags_of_server,
    show,
)
from bramley.cli.runners import HealthAddress, MetricsAddress, Namespace, probes

if TYPE_CHECKING:
    from bramley.app.dispatch import Settings

LISTEN = "127.0.0.1:8090"
GITHUB_API = "https://api.github.com"
_DATABASE = "sqlite:///dispatch.sqlite"

Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        help="Address of the HTTP server; GitHub and the guests reach it through an Ingress with TLS.",
        metavar="HOST:PORT",
    ),
]
Database = Annotated[
    str,
    typer.Option(
        "--database",
        help="SQLite file of the queue, for one replica; created if it does not exist.",
        metavar="sqlite:///FILE",
    ),
]
DatabaseUrlFile = Annotated[
    Path | None,
    typer.Option(
        "--database-url-file",
        help="File with the URL of a PostgreSQL database, for several replicas; used instead of --database.",
        show_default="none",
        metavar="FILE",
    ),
]
AccountsFile = Annotated[
    Path | None,
    typer.Option(
        "--accounts-file",
        help="YAML file with weights and limits of accounts, aliases and priorities of labels; read again when it changes.",
        show_default="none",
        metavar="FILE",
    ),
]
GitHubApiUrl = Annotated[
    str,
    typer.Option(
        "--github-api-url",
        help="GitHub's API; of GitHub Enterprise Server https://HOST/api/v3.",
        metavar="URL",
    ),
]
AppId = Annotated[
    str,
    typer.Option(
        "--github-app-id",
        help="ID of the GitHub App.",
        show_default="required",
        metavar="ID",
    ),
]
PrivateKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--github-private-key-file",
        help="Private key of the GitHub App as PEM.",
        show_default="required",
        metavar="FILE",
    ),
]
WebhookSecretFile = Annotated[
    Path | None,
    typer.Option(
        "--webhook-secret-file",
        help="File with the secret of the App's webhook; two lines while it is rotated. Read again when it changes.",
        show_default="required",
        metavar="FILE",
    ),
]
RunnerGroupId = Annotated[
    int,
    typer.Option(
        "--github-runner-group-id",
        help="Runner group that runners of organisations join.",
        min=1,
        metavar="ID",
    ),
]

Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="New file for the backup, readable by its owner only; it is created when the backup is complete.",
        metavar="FILE",
    ),
]

app = typer.Typer(name="dispatch", invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def dispatch(  # noqa: PLR0913 - one parameter per flag
    call: typer.Context,
    *,
    listen: Listen = LISTEN,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = groups.RUNNERS_NAMESPACE,
    database: Database = _DATABASE,
    database_url_file: DatabaseUrlFile = None,
    accounts_file: AccountsFile = None,
    github_api_url: GitHubApiUrl = GITHUB_API,
    github_app_id: AppId = "",
    github_private_key_file: PrivateKeyFile = None,
    github_runner_group_id: RunnerGroupId = 1,
    webhook_secret_file: WebhookSecretFile = None,
    metrics_bind_address: MetricsAddress = flags.METRICS_BIND_ADDRESS.default,
    health_probe_bind_address: HealthAddress = flags.HEALTH_PROBE_BIND_ADDRESS.default,
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.AUTO,
    show_settings: ShowSettings = False,
) -> None:
    """Serve GitHub jobs to the runners of pools: it receives webhooks, queues jobs, and answers polls of guests.

    SIGTERM ends held polls, answers requests in flight and stops; jobs that run continue.

    \b
    Examples:
      bramley dispatch --github-app-id 1234 --github-private-key-file app.pem --webhook-secret-file webhook-secret
      bramley dispatch --database-url-file database-url --accounts-file accounts.yaml …
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    values = {**locals()}
    del values["call"], values["show_settings"]
    if call.invoked_subcommand is not None:
        refuse_flags_of_server(call)
        return
    if show_settings:
        shown = {name: "none" if value in {None, ""} else value for name, value in values.items()}
        show(call, shown)
    else:
        _run(values)


@app.command("backup")
def backup(*, out: Out, database: Database = _DATABASE) -> None:
    """Write a consistent copy of the SQLite file while the server runs.

    The copy contains JIT configurations of jobs that are about to start: protect it. For a restore, stop the server and start it
    with the copy as its --database; it then reads from GitHub what happened since the backup. Of PostgreSQL, use pg_dump.

    \b
    Examples:
      bramley dispatch backup --database sqlite:///dispatch.sqlite --out dispatch.backup
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import dispatch as process

    path = out.expanduser().absolute()
    process.back_up(database, path)
    typer.echo(f"Wrote a backup of the queue to {path}.")


def _run(values: dict[str, Any]) -> None:
    settings = _settings(values)
    from bramley.app import dispatch as process
    from bramley.base import log

    log.configure(level=values["log_level"], form=values["log_format"])
    logger = log.get(__name__)
    process.run(
        settings,
        on_serving=lambda url: logger.info(
            "Serving dispatch", url=url, namespace=settings.namespace
        ),
    )


def _settings(values: dict[str, Any]) -> Settings:
    from bramley.app.agent_access import Cluster
    from bramley.app.dispatch import GitHubSettings, Settings
    from bramley.app.listen_address import Address

    required = ("github_app_id", "github_private_key_file", "webhook_secret_file")
    missing = ["--" + name.replace("_", "-") for name in required if not values[name]]
    if missing:
        raise BadConfiguration(
            f"{', '.join(missing)} missing; docs/how-to/github-app.md describes how to create the App"
        )
    github = GitHubSettings(
        app_id=values["github_app_id"],
        private_key_file=values["github_private_key_file"],
        webhook_secret_file=values["webhook_secret_file"],
        api_url=values["github_api_url"],
        runner_group_id=values["github_runner_group_id"],
    )
    return Settings(
        listen=Address.parse(values["listen"]),
        github=github,
        cluster=Cluster(values["kubeconfig"], values["context"]),
        namespace=values["namespace"],
        database=values["database"],
        database_url_file=values["database_url_file"],
        accounts_file=values["accounts_file"],
        probes=tuple(probes(values)),
    )
