"""`bramley up`: a whole cluster on one machine, with simulated Macs.

It prints one screen: what runs, where the kubeconfig is, how each Mac starts, and a few commands to try. On a terminal it is
coloured. Commands are never wrapped, so that they can be copied.
"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from bramley.cli import terminal
from bramley.cli.apiserver import effective, shown
from bramley.cli.flag_groups import grouped
from bramley.cli.options import MACS, show
from bramley.cli.up_flags import OwnMacFlags, ServerFlags, SimulatedMacFlags

if TYPE_CHECKING:
    from bramley.app.listen_address import Address
    from bramley.app.up import Progress, Settings

# The deployment of the rented Macs.
MACS_NAME = "macs"
# The pool that runs on the simulated Macs, and the image that it can be rolled to; `app.pools` creates it and is not loaded here.
SAMPLE = "macos"
NEXT_IMAGE = "ghcr.io/example/macos-runner:2"
TUTORIAL = "docs/tutorial/first-steps.md"
GOOD, BAD, COMMAND, FAINT = "bold green", "bold red", "cyan", "dim"

# A text and its style; several of them make a line.
Part = tuple[str, str]


class Flags(NamedTuple):
    """All flags by group."""

    server: ServerFlags
    simulated: SimulatedMacFlags
    own: OwnMacFlags


@grouped(Flags)
def up(call: typer.Context, given: Flags) -> None:
    """Start a cluster with simulated Macs on this machine and print commands to try.

    Each simulated Mac joins with a real agent, a sample pool of runners starts on them, and sample jobs of a simulated GitHub run there. No real Mac is needed or changed.
    With --bootstrap the machine controllers rent the Macs from a simulated Scaleway, one of them a builder. With --mac they set up Macs that you own.

    \b
    Examples:
      bramley up
      bramley up --macs 1
      bramley up --macs 1 --bootstrap
      bramley up --data-dir ./data --listen 127.0.0.1:0 --kubeconfig-out ./kubeconfig
      bramley up --listen 192.168.1.10:6443 --mac admin@192.168.1.20 --ask-password --tart-tarball-path tart.tar.gz \\
        --tartkubelet-archive-path agent.tar.gz --tartkubelet-interpreter-path interpreter.tar.gz
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.cli import up_settings

    if given.server.show_settings:
        show(call, _shown(given))
        return
    from bramley.base import log

    chosen = up_settings.settings(given)
    log.configure(level=given.server.log_level, form=given.server.log_format)
    _run(chosen)


def _shown(given: Flags) -> dict[str, object]:
    server = given.server
    files = effective(server.data_dir, server.listen, server.kubeconfig_out, server.audit_log)
    macs = dataclasses.asdict(given.simulated) | dataclasses.asdict(given.own)
    macs["macs"] = MACS if macs["macs"] is None and not macs["mac"] else macs["macs"] or 0
    macs["mac"] = ", ".join(macs["mac"]) if macs["mac"] else None
    shown_macs = {name: "none" if value is None else value for name, value in macs.items()}
    return {**shown(files, server.log_level, server.log_format), **shown_macs}


def _run(settings: Settings) -> None:
    from bramley.app import up as process

    screen = Screen(settings, commands=commands_to_try(settings, _program()))
    process.run(settings, on_serving=screen.on_serving, on_progress=screen.on_progress)


def commands_to_try(settings: Settings, program: str) -> Iterator[str]:
    """Yield at most six commands; in this order each one works."""
    yield f"export KUBECONFIG={shlex.quote(str(settings.server.kubeconfig))}"
    if settings.rented:
        yield "kubectl get machinedeployments,samm,nodes"
        yield f"{program} status"
        yield f"{program} demo job"
        yield f"kubectl scale machinedeployment {MACS_NAME} --replicas {settings.rented - 1}"
    elif settings.macs.count:
        change = f'{{"spec":{{"image":"{NEXT_IMAGE}"}}}}'
        yield "kubectl get nodes"
        yield f"{program} demo job"
        yield f"{program} jobs list"
        yield f"kubectl patch rpool {SAMPLE} --type merge -p '{change}'"
        yield f"{program} rollout status pool/{SAMPLE} --watch"
    elif settings.own:
        yield "kubectl get machosts,nodes"
        yield f"{program} status"
        yield f"{program} explain machost/{settings.own[0].name}"
    else:
        yield "kubectl get namespaces"
        yield "kubectl create deployment web --image nginx"
        yield "kubectl get deployments,replicasets,pods"
        yield "kubectl explain runnerpool.spec"


class Screen:
    """Prints one start; the commands to try come when every Mac is Ready or has failed."""

    def __init__(self, settings: Settings, *, commands: Iterable[str]) -> None:
        self._settings = settings
        # None until it is known how many are managed.
        is_managed = settings.rented is not None or bool(settings.own)
        self._expected = None if is_managed else settings.macs.count
        self._commands = commands
        self._has_printed_commands = False
        self._ready: set[str] = set()
        self._failed: set[str] = set()
        self._print = _rich_printer() if sys.stdout.isatty() else _print_plain

    def on_serving(self, address: Address) -> None:
        """Print where the server and its files are."""
        settings = self._settings
        self._print_row("API server", address.url)
        self._print_row("Kubeconfig", f"{settings.server.kubeconfig} (administrator)")
        self._print_row("Data", str(settings.server.data_dir))
        if settings.rented or settings.macs.count:
            self._print_row("Jobs", "sample jobs of a simulated GitHub, one every ten seconds")
        if settings.rented is not None:
            self._print_row("Macs", f"renting {settings.rented} simulated, and a builder")
        if settings.macs.count:
            count = settings.macs.count
            self._print_row("Macs", f"starting {count} simulated, each with a real agent")
        self._print_commands_at_the_end()

    def on_progress(self, progress: Progress) -> None:
        """Print what happens to a Mac, and after the last one the commands to try."""
        from bramley.app.up import ExpectedMacs, MacFailed, MacStep, Waiting

        if isinstance(progress, Waiting):
            self._print_row("Macs", progress.operation, FAINT)
        elif isinstance(progress, MacStep):
            self._print_row(progress.name, progress.step, FAINT)
        elif isinstance(progress, ExpectedMacs):
            self._expected = self._settings.macs.count + progress.count
        elif isinstance(progress, MacFailed):
            self._failed.add(progress.name)
            self._print_row(progress.name, f"failed to start: {progress.reason}", BAD)
        else:
            self._ready.add(progress.name)
            self._failed.discard(progress.name)
            message = f"Ready after {progress.after.total_seconds():.1f} s"
            of = "" if self._expected is None else f" ({len(self._ready)} of {self._expected})"
            self._print_row(progress.name, f"{message}{of}")
        self._print_commands_at_the_end()

    def _print_commands_at_the_end(self) -> None:
        # Once: managed Macs come and go.
        is_done = self._expected is not None and len(self._ready | self._failed) >= self._expected
        if is_done and not self._has_printed_commands:
            self._has_printed_commands = True
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
