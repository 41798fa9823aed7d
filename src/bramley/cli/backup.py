"""`bramley apiserver backup` and `restore`: the state of an embedded API as one file, and back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli.options import Context

if TYPE_CHECKING:
    from bramley.apiserver.admin.archives import Manifest


class Output(StrEnum):
    """What form the result is told in."""

    TEXT = "text"
    JSON = "json"


Told = Annotated[Output, typer.Option("--output", "-o", help="Form of what is printed.")]


Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="File for the backup, readable by its owner only; it appears when it is whole.",
        metavar="FILE",
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Administrator's kubeconfig of the running server.",
        show_default="as kubectl: $KUBECONFIG, ~/.kube/config",
        metavar="FILE",
    ),
]
StoppedFolder = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Data folder of a server that is stopped.", metavar="FOLDER"),
]


def backup(
    *,
    out: Out,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: StoppedFolder = None,
    output: Told = Output.TEXT,
) -> None:
    """Write a backup: objects, certificates, keys and token hashes as of one moment.

    A running server makes it itself and goes on serving. Whoever reads the file holds every key and Secret.

    \b
    Examples:
      bramley apiserver backup --kubeconfig ./kubeconfig --out ./bramley.backup
      bramley apiserver backup --data-dir ./data --out ./bramley.backup -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import backup as backups

    if data_dir is not None and (kubeconfig is not None or context is not None):
        raise BadConfiguration(
            "--data-dir is for a server that is stopped, --kubeconfig for one that runs; give one of them"
        )
    place = out.expanduser().absolute()
    if data_dir is not None:
        manifest = backups.of_folder(data_dir.expanduser().absolute(), place)
    else:
        with _progress() as progress:
            making = backups.of_server(kubeconfig, context, place, progress=progress)
            manifest = asyncio.run(making)
    _tell(
        output, {"file": str(place), **_facts(manifest)}, f"{place} is a backup of {_of(manifest)}."
    )


def restore(
    *,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir",
            help="Data folder to restore into; no server may run on it.",
            metavar="FOLDER",
        ),
    ],
    source: Annotated[Path, typer.Option("--from", help="The backup.", metavar="FILE")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace data that is there; it is moved aside, not deleted."),
    ] = False,
    output: Told = Output.TEXT,
) -> None:
    """Restore a backup into a data folder; the next start serves it.

    All resource versions rise above any that a client can have seen, so every client lists again.

    \b
    Examples:
      bramley apiserver restore --data-dir ./data --from ./bramley.backup
      bramley apiserver restore --data-dir ./data --from ./bramley.backup --force
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import backup as backups
    from bramley.base.clock import SystemClock

    folder = data_dir.expanduser().absolute()
    done = backups.restore(folder, source, force=force, now=SystemClock().now())
    moved = "" if done.aside is None else f"\nWhat was there before is in {done.aside}."
    facts = {"folder": str(folder), **_facts(done.manifest), "servedFrom": done.revision}
    if done.aside is not None:
        facts["before"] = str(done.aside)
    _tell(output, facts, f"{folder} holds {_of(done.manifest)}.{moved}")


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "made": f"{manifest.made:%Y-%m-%dT%H:%M:%SZ}",
        "revision": manifest.revision,
        "objects": manifest.objects,
        "bytes": sum(part.size_bytes for part in manifest.parts),
    }


def _of(manifest: Manifest) -> str:
    facts = _facts(manifest)
    return f"{facts['objects']:,} objects at revision {facts['revision']:,}, made {facts['made']}"


def _tell(output: Output, facts: dict[str, Any], sentence: str) -> None:
    import msgspec

    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(facts)).decode())
    else:
        typer.echo(sentence)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show how far the backup came, to people only."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Backing up", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
