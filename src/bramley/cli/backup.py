"""`bramley apiserver backup` and `restore`: save the state of an embedded API in one file, and restore it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bramley.cli.options import (
    Context,
    Kubeconfig,
    Output,
    OutputFormat,
    StoppedFolder,
    refuse_both_servers,
    to_json,
)

if TYPE_CHECKING:
    from bramley.apiserver.admin.archives import Manifest


Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="File for the backup, readable by its owner only; it is created when the backup is complete.",
        metavar="FILE",
    ),
]


def backup(
    *,
    out: Out,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: StoppedFolder = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Write a consistent backup of objects, certificates, keys and token hashes.

    A running server makes the backup while it serves. The file contains every key and Secret: protect it.

    \b
    Examples:
      bramley apiserver backup --kubeconfig ./kubeconfig --out ./bramley.backup
      bramley apiserver backup --data-dir ./data --out ./bramley.backup -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import backup as backups

    refuse_both_servers(kubeconfig, context, data_dir)
    path = out.expanduser().absolute()
    if data_dir is not None:
        manifest = backups.back_up_folder(data_dir.expanduser().absolute(), path)
    else:
        with _progress() as progress:
            operation = backups.back_up_server(kubeconfig, context, path, progress=progress)
            manifest = asyncio.run(operation)
    facts = {"file": str(path), **_facts(manifest)}
    _print(output, facts, f"Wrote a backup of {_summary(manifest)} to {path}.")


def restore(
    *,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir",
            help="Data folder to restore into; its server must be stopped.",
            metavar="FOLDER",
        ),
    ],
    source: Annotated[Path, typer.Option("--from", help="Backup file.", metavar="FILE")],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace existing data, which is moved aside and not deleted."
        ),
    ] = False,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Restore a backup into a data folder; the next start of the server uses it.

    All resource versions are raised above any that a client may have seen, so that every client lists again.

    \b
    Examples:
      bramley apiserver restore --data-dir ./data --from ./bramley.backup
      bramley apiserver restore --data-dir ./data --from ./bramley.backup --force
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import backup as backups
    from bramley.base.clock import SystemClock

    folder = data_dir.expanduser().absolute()
    restored = backups.restore(folder, source, force=force, now=SystemClock().now())
    moved = "" if restored.previous is None else f"\nThe previous data is in {restored.previous}."
    facts = {"folder": str(folder), **_facts(restored.manifest), "servedFrom": restored.revision}
    if restored.previous is not None:
        facts["before"] = str(restored.previous)
    _print(output, facts, f"Restored {_summary(restored.manifest)} into {folder}.{moved}")


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "made": f"{manifest.made:%Y-%m-%dT%H:%M:%SZ}",
        "revision": manifest.revision,
        "objects": manifest.objects,
        "bytes": sum(part.size_bytes for part in manifest.parts),
    }


def _summary(manifest: Manifest) -> str:
    facts = _facts(manifest)
    return f"{facts['objects']:,} objects at revision {facts['revision']:,}, made {facts['made']}"


def _print(output: Output, facts: dict[str, Any], sentence: str) -> None:
    if output is Output.JSON:
        typer.echo(to_json(facts))
    else:
        typer.echo(sentence)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Backing up", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
