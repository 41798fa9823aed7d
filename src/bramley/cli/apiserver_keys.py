"""`bramley apiserver rotate-keys`: sign the tokens of ServiceAccounts with a new key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli.backup import Kubeconfig, Output, StoppedFolder, Told
from bramley.cli.options import Context

if TYPE_CHECKING:
    from bramley.apiserver.admin.key_rotation import Rotated

VoidOld = Annotated[
    bool,
    typer.Option(
        "--void-old",
        help="Forget the older keys at once: every token that they signed, those of agents too, is void. For a key that leaked.",
    ),
]


def rotate_keys(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: StoppedFolder = None,
    void_old: VoidOld = False,
    output: Told = Output.TEXT,
) -> None:
    """Sign tokens of ServiceAccounts with a new key from now on.

    The key before verifies until the last token that it signed can have ended, and is gone then; nobody has to do anything.

    \b
    Examples:
      bramley apiserver rotate-keys --kubeconfig ./kubeconfig
      bramley apiserver rotate-keys --kubeconfig ./kubeconfig --void-old
      bramley apiserver rotate-keys --data-dir ./data -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import apiserver_keys
    from bramley.base.clock import SystemClock

    if data_dir is not None and (kubeconfig is not None or context is not None):
        raise BadConfiguration(
            "--data-dir is for a server that is stopped, --kubeconfig for one that runs; give one of them"
        )
    if data_dir is not None:
        folder = data_dir.expanduser().absolute()
        made = apiserver_keys.of_folder(folder, clock=SystemClock(), void_old=void_old)
    else:
        made = asyncio.run(apiserver_keys.of_server(kubeconfig, context, void_old=void_old))
    _tell(output, made)


def _tell(output: Output, made: Rotated) -> None:
    import msgspec

    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(made)).decode())
        return
    newest, *older = made.keys
    typer.echo(f"Tokens of ServiceAccounts are signed with the key {newest.name} from now on.")
    for key in older:
        end = f" until {key.until:%Y-%m-%d}" if key.until is not None else ""
        typer.echo(f"The key {key.name} verifies{end}.")
    if not older:
        typer.echo("No other key verifies: tokens made before are void.")
