"""The options of `bramley host` that say what is done; those that say where are in `host_way`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        help="File that says what the Mac is to become; docs/reference/host-config.md explains it.",
        metavar="FILE",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Only this step; may be given several times.", metavar="STEP"),
]
Skip = Annotated[
    list[str] | None,
    typer.Option("--skip", help="Not this step; may be given several times.", metavar="STEP"),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
]
ReplaceTart = Annotated[
    bool,
    typer.Option(
        "--replace-tart",
        help="Put another version of Tart in place of the one there; the Mac must run no VMs and loses its Local Network grant.",
    ),
]
KeepTart = Annotated[
    bool, typer.Option("--keep-tart/--no-keep-tart", help="Leave Tart and its images on the Mac.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before taking things away.")]
Rate = Annotated[
    int,
    typer.Option(
        "--megabytes-per-second",
        min=0,
        help="The most that artifacts may take of your line; 0 is no limit.",
        metavar="COUNT",
    ),
]
