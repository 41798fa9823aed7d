"""The options and arguments that the commands about pools share."""

from __future__ import annotations

from typing import Annotated

import typer

from bramley.api.names import runners
from bramley.base.errors import BadConfiguration

Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        envvar=runners.ENV_NAMESPACE,
        help="Namespace of the object.",
        show_default="that of the kubeconfig's context",
        metavar="NAME",
    ),
]
Pool = Annotated[str, typer.Argument(help="The pool, as pool/NAME.", metavar="pool/NAME")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show changes until interrupted.")]

POOL_KINDS = frozenset({"pool", "rpool", "runnerpool", "runnerpools"})
POD_KINDS = frozenset({"pod", "pods", "po"})
MACHINE_KINDS = frozenset(
    {"machine", "samm", "scalewayapplesiliconmachine", "scalewayapplesiliconmachines"}
)
MAC_HOST_KINDS = frozenset({"machost", "mh", "machosts"})


def pool_name(text: str) -> str:
    """Return the name in pool/NAME; the kind may be left out."""
    kind, slash, name = text.rpartition("/")
    if not name or (slash and kind not in POOL_KINDS):
        raise BadConfiguration(f"{text!r} is not a pool; write it as pool/NAME")
    return name
