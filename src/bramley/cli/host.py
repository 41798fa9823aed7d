"""`bramley host`: configure one Mac over SSH."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli import host_output
from bramley.cli.agent_access import TOKEN_LIFETIME, ServerUrl, TokenLifetime
from bramley.cli.host_connection import over_ssh, password
from bramley.cli.options import Context, Kubeconfig, Output, OutputFormat, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from bramley.app.hosts import ApplyOptions
    from bramley.app.ssh_options import SshOptions
    from bramley.host.progress import OnProgress, Report

    Act = Callable[[OnProgress], Coroutine[Any, Any, Report]]

Config = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        help="Configuration file of the Mac; see docs/reference/host-config.md.",
        metavar="FILE",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Run only this step; repeatable.", metavar="STEP"),
]
Skip = Annotated[
    list[str] | None,
    typer.Option("--skip", help="Skip this step; repeatable.", metavar="STEP"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")]
ReplaceTart = Annotated[
    bool,
    typer.Option(
        "--replace-tart",
        help="Replace an installed Tart of another version; the Mac must run no VMs, and Tart loses its Local Network permission.",
    ),
]
NoReboot = Annotated[
    bool,
    typer.Option(
        "--no-reboot",
        help="Do not reboot the Mac; everything else is done, and what needs a reboot is reported as pending.",
    ),
]
KeepTart = Annotated[
    bool, typer.Option("--keep-tart/--no-keep-tart", help="Keep Tart and its images on the Mac.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
ProfileConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Configuration file of a Mac, to name the profile after its Node.",
        show_default="a profile for all Macs",
        metavar="FILE",
    ),
]
ProfileOut = Annotated[
    str,
    typer.Option(
        "--out",
        "-o",
        help="File for the profile, or - for standard output; only an earlier profile is replaced.",
        metavar="FILE",
    ),
]
BandwidthLimit = Annotated[
    int,
    typer.Option(
        "--bandwidth-limit",
        min=0,
        help="Bandwidth limit of artifacts in megabytes per second; 0 is no limit.",
        metavar="MB",
    ),
]


NOT_CONVERGED = 1
STANDARD_OUTPUT = "-"

app = typer.Typer(
    name="host",
    help="Inspect, configure and clean up one Mac over SSH.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("facts")
@over_ssh
def facts(
    ssh_options: SshOptions,
    *,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Show facts about a Mac; nothing is changed.

    \b
    Examples:
      bramley host facts m1@10.0.0.5
      bramley host facts m1@10.0.0.5 -i fleet_key -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import hosts

    overview = asyncio.run(hosts.facts(ssh_options))
    host_output.print_facts(ssh_options.target, overview, as_json=output is Output.JSON)


@app.command("plan")
@over_ssh
def plan(
    ssh_options: SshOptions,
    *,
    config: Config,
    only: Only = None,
    skip: Skip = None,
    replace_tart: ReplaceTart = False,
    no_reboot: NoReboot = False,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Show the plan for a Mac, step by step and with diffs; nothing is changed.

    \b
    Examples:
      bramley host plan m1@10.0.0.5 -c mac-1.yaml
      bramley host plan m1@10.0.0.5 -c mac-1.yaml --only firewall -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    more = {"replace_tart": replace_tart, "no_reboot": no_reboot}
    _show_plan(ssh_options, _apply_options(config, only, skip, **more), output)


@app.command("verify")
@over_ssh
def verify(
    ssh_options: SshOptions,
    *,
    config: Config,
    only: Only = None,
    skip: Skip = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Check whether a Mac is up to date; exit code 1 if it is not. Nothing is changed.

    \b
    Examples:
      bramley host verify m1@10.0.0.5 -c mac-1.yaml && echo "up to date"
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    if not _show_plan(ssh_options, _apply_options(config, only, skip), output):
        raise typer.Exit(NOT_CONVERGED)


@app.command("apply")
@over_ssh
def apply(  # noqa: PLR0913 - one parameter a flag
    ssh_options: SshOptions,
    *,
    config: Config,
    dry_run: DryRun = False,
    only: Only = None,
    skip: Skip = None,
    replace_tart: ReplaceTart = False,
    no_reboot: NoReboot = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    server: ServerUrl = None,
    token_lifetime: TokenLifetime = TOKEN_LIFETIME,
    bandwidth_limit: BandwidthLimit = 0,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Converge a Mac to the configuration file; steps that are up to date are skipped.

    The agent's identity is created in the cluster of --kubeconfig, unless the file names a kubeconfig. After an interruption, run the
    command again to continue. The Mac is rebooted at most once, for the printed reason, and never while it runs VMs; what still
    waits for a reboot is reported as pending, and `verify` fails until it is done.

    \b
    Examples:
      bramley host apply m1@10.0.0.5 -c mac-1.yaml --ask-password
      bramley host apply m1@10.0.0.5 -c mac-1.yaml --dry-run
      bramley host apply m1@10.0.0.5 -c mac-1.yaml --only agent --only agent-job
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import hosts

    identity = _identity_options(kubeconfig, context, server, token_lifetime)
    changes = {"replace_tart": replace_tart, "no_reboot": no_reboot}
    limit = {"megabytes_per_second": bandwidth_limit}
    options = _apply_options(config, only, skip, **identity, **changes, **limit)
    if dry_run:
        _show_plan(ssh_options, options, output)
        return
    _run(lambda on_progress: hosts.apply(ssh_options, options, on_progress), ssh_options, output)


@app.command("prepare")
@over_ssh
def prepare(
    ssh_options: SshOptions,
    *,
    dry_run: DryRun = False,
    only: Only = None,
    skip: Skip = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Set up what needs the user's password: passwordless sudo, and automatic login.

    The password is read without echo and checked by the Mac before anything is written. The command fails if macOS rejects it for
    automatic login.

    \b
    Examples:
      bramley host prepare m1@10.0.0.5
      bramley host prepare m1@10.0.0.5 --password-file ./password
      bramley host prepare m1@10.0.0.5 --only auto-login
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import hosts

    secret = ssh_options.password or password(None, ask=True, target=ssh_options.target)
    if secret is None:
        raise BadConfiguration("no password was given")
    options = hosts.PreparationOptions(
        password=secret, only=tuple(only or ()), skip=tuple(skip or ())
    )
    if dry_run:
        planned = asyncio.run(hosts.plan_preparation(ssh_options, options))
        host_output.print_plan(planned, as_json=output is Output.JSON)
        return
    _run(lambda on_progress: hosts.prepare(ssh_options, options, on_progress), ssh_options, output)


@app.command("remove")
@over_ssh
def remove(
    ssh_options: SshOptions,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    keep_tart: KeepTart = True,
    only: Only = None,
    skip: Skip = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Remove Bramley from a Mac; everything else stays.

    \b
    Examples:
      bramley host remove m1@10.0.0.5 --dry-run
      bramley host remove m1@10.0.0.5 --yes --no-keep-tart
      bramley host remove m1@10.0.0.5 --yes --skip sudo --skip auto-login
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import hosts

    options = hosts.RemovalOptions(
        keep_tart=keep_tart, only=tuple(only or ()), skip=tuple(skip or ())
    )
    if dry_run:
        planned = asyncio.run(hosts.plan_removal(ssh_options, options))
        host_output.print_plan(planned, as_json=output is Output.JSON)
        return
    if not yes:
        typer.confirm(f"Remove Bramley from {ssh_options.target}?", abort=True, err=True)
    _run(
        lambda on_progress: hosts.remove(ssh_options, options, on_progress),
        ssh_options,
        output,
        is_removal=True,
    )


@app.command("mdm-profile")
def mdm_profile(*, config: ProfileConfig = None, out: ProfileOut = STANDARD_OUTPUT) -> None:
    """Write a configuration profile for an MDM: sleep, updates, login window, and the Local Network allow-list.

    It contains no secret and connects to no Mac. Automatic login is not part of it, because macOS needs the password for that; use
    `prepare` or `apply`. Whether macOS reads the Local Network allow-list from a profile is untried.

    \b
    Examples:
      bramley host mdm-profile -o macs.mobileconfig
      bramley host mdm-profile -c mac-1.yaml | plutil -lint -
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.apiserver.pki import private_files
    from bramley.app import config_files, host_config
    from bramley.host import mdm_profile as profile

    if config is None:
        content = profile.render()
    else:
        with host_config.config_errors(config):
            content = profile.render(host_config.read(config).node)
    if out == STANDARD_OUTPUT:
        typer.echo(content.decode(), nl=False)
        return
    path = Path(out)
    with config_files.file_errors("--out", path):
        # Only a file is read: a terminal or pipe would block.
        is_free = not path.exists() or (path.is_file() and profile.is_ours(path.read_bytes()))
    if not is_free:
        raise BadConfiguration(
            f"{path} exists and is not such a profile; choose another file with --out, or - for standard output"
        )
    private_files.write(path, content)
    typer.echo(f"Wrote a configuration profile to {path}.")


def _run(act: Act, ssh_options: SshOptions, output: Output, *, is_removal: bool = False) -> None:
    """Run an operation, and show its progress and result."""
    display = host_output.ProgressDisplay(
        ssh_options.target, as_json=output is Output.JSON, is_removal=is_removal
    )
    with display.status_shown():
        report = asyncio.run(act(display.on_progress))
    display.print_report(report)


def _show_plan(ssh_options: SshOptions, options: ApplyOptions, output: Output) -> bool:
    """Print the plan, and return whether the Mac is up to date."""
    from bramley.app import hosts

    planned = asyncio.run(hosts.plan(ssh_options, options))
    host_output.print_plan(planned, as_json=output is Output.JSON)
    return planned.is_converged


def _identity_options(
    kubeconfig: Path | None, context: str | None, server: str | None, token_lifetime: str
) -> dict[str, object]:
    """Return where an identity for the agent is created, and how long its token is valid."""
    from bramley.app import agent_access

    return {
        "cluster": agent_access.Cluster(kubeconfig, context),
        "server": server,
        "expires": duration(token_lifetime, option="--token-lifetime"),
    }


def _apply_options(
    config: Path, only: list[str] | None, skip: list[str] | None, **options: object
) -> ApplyOptions:
    from bramley.app.hosts import ApplyOptions

    return ApplyOptions(config=config, only=tuple(only or ()), skip=tuple(skip or ()), **options)  # type: ignore[arg-type]
