"""`bramley agent-access`: make, renew and withdraw the identity of an agent, on the embedded API or on a cluster."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bramley.api.names import access, agent
from bramley.base.errors import BadConfiguration
from bramley.cli.options import Context, Format, Level, LogFormat, LogLevel

if TYPE_CHECKING:
    from bramley.app.agent_access import Issued

EXPIRES = "24h"
_DURATION = re.compile(r"(\d+)(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

app = typer.Typer(
    name="agent-access",
    help="Make, renew and withdraw the identity of an agent.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Output(StrEnum):
    """What form the result is told in."""

    TEXT = "text"
    JSON = "json"


class Manifests(StrEnum):
    """What form manifests are printed in."""

    YAML = "yaml"
    JSON = "json"


Node = Annotated[
    str, typer.Argument(help="Name of the Node that the agent is tied to.", metavar="NODE")
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Administrator's kubeconfig.",
        show_default="as kubectl: $KUBECONFIG, the Pod's own, ~/.kube/config",
        metavar="FILE",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="File for the agent's kubeconfig, readable by its owner only; without it the kubeconfig is printed.",
        metavar="FILE",
    ),
]
ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="Address under which the agent reaches the server.",
        show_default="the administrator's",
        metavar="URL",
    ),
]
Expires = Annotated[
    str,
    typer.Option(
        "--expires",
        help="How long the token lives, such as 30m, 24h or 7d; the server may grant less.",
        metavar="TIME",
    ),
]
Told = Annotated[Output, typer.Option("--output", "-o", help="Form of what is printed.")]


@app.command("create")
def create(
    node: Node,
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    out: Out = None,
    server: ServerUrl = None,
    expires: Expires = EXPIRES,
    output: Told = Output.TEXT,
) -> None:
    """Make an agent's identity for NODE, and write its kubeconfig.

    It is a ServiceAccount with an agent's rights and no others, and a token, bound to the Node if that exists already.
    Calling it again renews the token and mends the rights.

    \b
    Examples:
      bramley agent-access create mac-1 --out mac-1.kubeconfig
      bramley agent-access create mac-1 --server https://api.example.com:6443 --expires 7d -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.apiserver.pki import private_files
    from bramley.app import agent_access

    lifetime = duration(expires)
    if out is not None:
        _check_place(out)
    cluster = agent_access.Cluster(kubeconfig, context)
    issued = asyncio.run(agent_access.create(cluster, node, expires=lifetime, server=server))
    if out is not None:
        private_files.write(out, issued.kubeconfig.reveal().encode())
    typer.echo(_told_json(issued, out) if output is Output.JSON else _told(issued, out), nl=False)


@app.command("revoke")
def revoke(
    node: Node,
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Told = Output.TEXT,
) -> None:
    """Withdraw the identity of NODE's agent: its tokens die, its roles and bindings go.

    \b
    Examples:
      bramley agent-access revoke mac-1
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import agent_access

    cluster = agent_access.Cluster(kubeconfig, context)
    revoked = asyncio.run(agent_access.revoke(cluster, node))
    if output is Output.JSON:
        typer.echo(_json({"node": node, "revoked": revoked}))
    elif revoked:
        typer.echo(f"The agent of {node} is revoked; its tokens are void.")
    else:
        typer.echo(f"{node} has no agent; nothing was changed.")


@app.command("policy")
def policy(
    *,
    output: Annotated[
        Manifests, typer.Option("--output", "-o", help="Form of the output.")
    ] = Manifests.YAML,
) -> None:
    """Print what all agents share: their namespace, their ClusterRole and a policy.

    The policy bounds what they write. `create` brings these by itself; print them to read them, or to apply them some other way.

    \b
    Examples:
      bramley agent-access policy | kubectl apply -f -
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.access import belongings
    from bramley.access import policy as writes
    from bramley.api.crds import to_yaml
    from bramley.api.meta import to_wire

    shared = (belongings.namespace(), belongings.shared_role(), *writes.objects())
    manifests = [to_wire(part) for part in shared]
    if output is Manifests.JSON:
        typer.echo(_json({"apiVersion": "v1", "kind": "List", "items": manifests}))
    else:
        typer.echo("---\n".join(to_yaml(manifest) for manifest in manifests), nl=False)


@app.command("keep")
def keep(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.AUTO,
) -> None:
    """Keep the Roles of all agents equal to what their Pods refer to, until it is stopped.

    A real cluster needs this process; the embedded API looks at the Pods itself. Several may run: one of them acts.

    \b
    Examples:
      bramley agent-access keep --kubeconfig ./kubeconfig
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import agent_access
    from bramley.base import log

    log.configure(level=log_level, form=log_format)
    logger = log.get(__name__)
    cluster = agent_access.Cluster(kubeconfig, context)
    started = "Keeping the Roles of agents"
    asyncio.run(agent_access.keep(cluster, started=lambda: logger.info(started)))


def duration(text: str, *, option: str = "--expires") -> timedelta:
    """Read a time such as 30s, 5m, 24h or 7d."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise BadConfiguration(f"{option} {text!r} is no time; write it like 30s, 5m, 24h or 7d")
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        raise BadConfiguration(f"{option} {text!r} is too long; a year is plenty") from None


def _check_place(out: Path) -> None:
    from bramley.access import kubeconfig
    from bramley.apiserver.pki import private_files

    content = private_files.read(out)
    if content and not kubeconfig.is_ours(content):
        raise BadConfiguration(
            f"{out} is no agent's kubeconfig and is left as it is; choose another file with --out"
        )
    private_files.check_place(out)


def _told(issued: Issued, out: Path | None) -> str:
    if out is None:
        return issued.kubeconfig.reveal()
    made = issued.identity
    bound = "bound to the Node" if made.is_bound else "bound to no Node yet: the agent registers it"
    return (
        f"{agent.service_account(made.node)} in {access.NAMESPACE} is the agent of {made.node}.\n"
        f"Its kubeconfig is {out} (holds its token; {bound}), good until {_moment(issued)}.\n"
    )


def _told_json(issued: Issued, out: Path | None) -> str:
    made = issued.identity
    holds = {"kubeconfig": issued.kubeconfig.reveal()} if out is None else {"file": str(out)}
    told = {
        "node": made.node,
        "namespace": access.NAMESPACE,
        "serviceAccount": agent.service_account(made.node),
        "server": issued.server,
        "expires": _moment(issued),
        "boundToNode": made.is_bound,
        **holds,
    }
    return _json(told) + "\n"


def _moment(issued: Issued) -> str:
    return f"{issued.identity.expires:%Y-%m-%dT%H:%M:%SZ}"


def _json(told: dict[str, Any]) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(told)).decode()
