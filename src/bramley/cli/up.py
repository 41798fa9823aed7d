"""`bramley up`: a whole cluster on one machine, with simulated Macs.

It prints one screen: what runs, where the kubeconfig is, how each Mac starts, and a few commands to try. On a terminal it is
coloured. Commands are never wrapped, so that they can be copied.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bramley.cli import terminal
from bramley.cli.apiserver import effective, shown
from bramley.cli.options import (
    LISTEN,
    MACS,
    AuditLog,
    Bootstrap,
    DataDir,
    Format,
    KubeconfigOut,
    Level,
    Listen,
    LogFormat,
    LogLevel,
    Macs,
    ShowSettings,
    show,
)

if TYPE_CHECKING:
    from bramley.app.apiserver import Settings
    from bramley.app.listen_address import Address
    from bramley.app.up import MacSettings, Progress

MACS_FOLDER = "macs"
BARE_MACS_FOLDER = "bootstrapped-macs"
# The pool that runs on the simulated Macs, and the image that it can be rolled to; `app.pools` creates it and is not loaded here.
SAMPLE = "macos"
NEXT_IMAGE = "ghcr.io/example/macos-runner:2"
TUTORIAL = "docs/tutorial/first-steps.md"
GOOD, BAD, COMMAND, FAINT = "bold green", "bold red", "cyan", "dim"

# A text and its style; several of them make a line.
Part = tuple[str, str]


def up(  # noqa: PLR0913 - one parameter a flag
    context: typer.Context,
    *,
    data_dir: DataDir = None,
    listen: Listen = LISTEN,
    kubeconfig_out: KubeconfigOut = None,
    audit_log: AuditLog = None,
    macs: Macs = MACS,
    bootstrap: Bootstrap = False,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
    show_settings: ShowSettings = False,
) -> None:
    """Start a cluster with simulated Macs on this machine and print commands to try.

    Each simulated Mac joins with a real agent, a sample pool of runners starts on them, and sample jobs of a simulated GitHub run there. No real Mac is needed or changed.

    \b
    Examples:
      bramley up
      bramley up --macs 1
      bramley up --macs 1 --bootstrap
      bramley up --data-dir ./data --listen 127.0.0.1:0 --kubeconfig-out ./kubeconfig
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    settings = effective(data_dir, listen, kubeconfig_out, audit_log)
    if show_settings:
        server = shown(settings, log_level, log_format)
        show(context, {**server, "macs": macs, "bootstrap": bootstrap})
        return
    from bramley.base import log

    log.configure(level=log_level, form=log_format)
    _run(settings, macs, bootstrap=bootstrap)


def _run(settings: Settings, macs: int, *, bootstrap: bool) -> None:
    from bramley.app import up as process

    # Bare Macs have their own folder; without any Macs the kind does not matter.
    chosen = mac_settings(settings.data_dir, macs, bootstrap=bootstrap and macs > 0)
    commands = commands_to_try(settings.kubeconfig, _program(), macs=macs)
    screen = Screen(settings, macs=macs, commands=commands)
    process.run(
        process.Settings(settings, chosen),
        on_serving=screen.on_serving,
        on_progress=screen.on_progress,
    )


def mac_settings(data: Path, count: int, *, bootstrap: bool) -> MacSettings:
    """Return the settings of the Macs, whose kind has its own folder below the data folder."""
    from bramley.app.up import MacSettings

    own, other = data / MACS_FOLDER, data / BARE_MACS_FOLDER
    if bootstrap:
        own, other = other, own
    return MacSettings(own, count, bootstrap=bootstrap, other_folder=other)


def commands_to_try(kubeconfig: Path, program: str, *, macs: int = MACS) -> Iterator[str]:
    """Yield at most six commands; in this order each one works."""
    yield f"export KUBECONFIG={shlex.quote(str(kubeconfig))}"
    if macs:
        change = f'{{"spec":{{"image":"{NEXT_IMAGE}"}}}}'
        yield "kubectl get nodes"
        yield f"{program} demo job"
        yield f"{program} jobs list"
        yield f"kubectl patch rpool {SAMPLE} --type merge -p '{change}'"
        yield f"{program} rollout status pool/{SAMPLE} --watch"
    else:
        yield "kubectl get namespaces"
        yield "kubectl create deployment web --image nginx"
        yield "kubectl get deployments,replicasets,pods"
        yield "kubectl explain runnerpool.spec"


class Screen:
    """Prints one start; the commands to try come when every Mac is Ready or has failed."""

    def __init__(self, settings: Settings, *, macs: int, commands: Iterable[str]) -> None:
        self._settings = settings
        self._macs = macs
        self._commands = commands
        self._ready = 0
        self._failed = 0
        self._print = _rich_printer() if sys.stdout.isatty() else _print_plain

    def on_serving(self, address: Address) -> None:
        """Print where the server and its files are."""
        settings = self._settings
        self._print_row("API server", address.url)
        self._print_row("Kubeconfig", f"{settings.kubeconfig} (administrator)")
        self._print_row("Data", str(settings.data_dir))
        if self._macs:
            self._print_row("Jobs", "sample jobs of a simulated GitHub, one every ten seconds")
            self._print_row("Macs", f"starting {self._macs} simulated, each with a real agent")
        else:
            self._print_commands()

    def on_progress(self, progress: Progress) -> None:
        """Print how the start of a Mac went, and after the last one the commands to try."""
        from bramley.app.up import MacFailed, StepDone, Waiting

        if isinstance(progress, Waiting):
            self._print_row("Macs", progress.operation, FAINT)
            return
        if isinstance(progress, StepDone):
            # Only steps with changes: a Mac that was bootstrapped before has sixteen without any.
            if progress.changed:
                self._print_row(progress.name, f"{progress.step}: {progress.changed} done", FAINT)
            return
        if isinstance(progress, MacFailed):
            self._failed += 1
            self._print_row(progress.name, f"failed to start: {progress.reason}", BAD)
        else:
            self._ready += 1
            message = f"Ready after {progress.after.total_seconds():.1f} s"
            self._print_row(progress.name, f"{message} ({self._ready} of {self._macs})")
        if self._ready + self._failed == self._macs:
            self._print_commands()

    def _print_row(self, name: str, value: str, style: str = GOOD) -> None:
        self._print((f"{name:<10}  ", style), (value, ""))

    def _print_commands(self) -> None:
        self._print()
        self._print(("Try in a second terminal:", FAINT))
        for command in self._commands:
            self._print(("  ", ""), (command, COMMAND))
        self._print()
        self._print((f"More: {TUTORIAL}. Stop with Ctrl-C; the data is kept.", FAINT))


def _print_plain(*parts: Part) -> None:
    typer.echo("".join(text for text, _ in parts))
    sys.stdout.flush()


def _rich_printer() -> Callable[..., None]:
    from rich.text import Text

    console = terminal.console()

    def print_parts(*parts: Part) -> None:
        console.print(Text.assemble(*parts), soft_wrap=True)

    return print_parts


def _program() -> str:
    """Return the command that runs this program: its name if it is on the PATH, otherwise its path."""
    program = Path(sys.argv[0]).absolute()
    on_path = shutil.which("bramley")
    return (
        "bramley" if on_path and Path(on_path).absolute() == program else shlex.quote(str(program))
    )
