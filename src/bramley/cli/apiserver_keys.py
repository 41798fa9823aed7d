"""`bramley apiserver rotate-keys`: replace the key that signs tokens of ServiceAccounts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

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
    from bramley.apiserver.admin.endpoints import RotatedKeys

RevokeOldKeys = Annotated[
    bool,
    typer.Option(
        "--revoke-old-keys",
        help="Delete the older keys, for example after a leak; every token that they signed, also of agents, becomes invalid.",
    ),
]


def rotate_keys(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: StoppedFolder = None,
    revoke_old_keys: RevokeOldKeys = False,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Create a new key that signs tokens of ServiceAccounts.

    The previous key verifies tokens until the last one that it signed has expired, and is then deleted automatically.

    \b
    Examples:
      bramley apiserver rotate-keys --kubeconfig ./kubeconfig
      bramley apiserver rotate-keys --kubeconfig ./kubeconfig --revoke-old-keys
      bramley apiserver rotate-keys --data-dir ./data -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import apiserver_keys
    from bramley.base.clock import SystemClock

    refuse_both_servers(kubeconfig, context, data_dir)
    if data_dir is not None:
        folder = data_dir.expanduser().absolute()
        keys = apiserver_keys.rotate_in_folder(
            folder, clock=SystemClock(), revoke_old=revoke_old_keys
        )
    else:
        keys = asyncio.run(
            apiserver_keys.rotate_on_server(kubeconfig, context, revoke_old=revoke_old_keys)
        )
    _print(output, keys)


def _print(output: Output, rotated: RotatedKeys) -> None:
    if output is Output.JSON:
        typer.echo(to_json(rotated))
        return
    newest, *older = rotated.keys
    typer.echo(f"Key {newest.name} now signs the tokens of ServiceAccounts.")
    for key in older:
        end = f" until {key.until:%Y-%m-%d}" if key.until is not None else ""
        typer.echo(f"Key {key.name} still verifies tokens{end}.")
    if not older:
        typer.echo("Older keys are deleted; tokens issued before are invalid.")
