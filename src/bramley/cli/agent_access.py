"""`bramley agent-access`: create, renew and revoke the identity of an agent, on the embedded API or on a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bramley.api.names import access, agent
from bramley.base.errors import BadConfiguration
from bramley.cli.options import (
    Context,
    Format,
    Kubeconfig,
    Level,
    LogFormat,
    LogLevel,
    ManifestFormat,
    ManifestOutput,
    Output,
    OutputFormat,
    duration,
    to_json,
)

if TYPE_CHECKING:
    from bramley.app.agent_access import Issued

TOKEN_LIFETIME = "24h"  # noqa: S105 - a duration

app = typer.Typer(
    name="agent-access",
    help="Create, renew and revoke the identity of an agent.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


Node = Annotated[str, typer.Argument(help="Name of the agent's Node.", metavar="NODE")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="File for the agent's kubeconfig, readable by its owner only.",
        show_default="printed to standard output",
        metavar="FILE",
    ),
]
ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="URL of the server for the agent.",
        show_default="the server of the administrator's kubeconfig",
        metavar="URL",
    ),
]
TokenLifetime = Annotated[
    str,
    typer.Option(
        "--token-lifetime",
        help="Lifetime of the token, such as 30m, 24h or 7d; the server may grant less.",
        metavar="DURATION",
    ),
]


NodeLabels = Annotated[
    str | None,
    typer.Option(
        "--node-labels",
        help="Labels that the agent may register its Node with, as given to the agent; recorded on its ServiceAccount.",
        show_default="those recorded before",
        metavar="KEY=VALUE,…",
    ),
]
RegisterTaints = Annotated[
    str | None,
    typer.Option(
        "--register-taints",
        help="Taints that the agent may register its Node with, as given to the agent; recorded on its ServiceAccount.",
        show_default="those recorded before",
        metavar="KEY[=VALUE]:EFFECT,…",
    ),
]


@app.command("create")
def create(  # noqa: PLR0913 - one parameter per flag
    node: Node,
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    out: Out = None,
    server: ServerUrl = None,
    token_lifetime: TokenLifetime = TOKEN_LIFETIME,
    node_labels: NodeLabels = None,
    register_taints: RegisterTaints = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Create the identity of NODE's agent and write its kubeconfig.

    The identity is a ServiceAccount with the permissions of an agent, and a token that is bound to the Node if it exists.
    Running the command again renews the token and restores the permissions.

    \b
    Examples:
      bramley agent-access create mac-1 --out mac-1.kubeconfig
      bramley agent-access create mac-1 --server https://api.example.com:6443 --token-lifetime 7d -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.access import registration
    from bramley.apiserver.pki import private_files
    from bramley.app import agent_access

    lifetime = duration(token_lifetime, option="--token-lifetime")
    is_recorded = node_labels is not None or register_taints is not None
    record = registration.parse(node_labels or "", register_taints or "") if is_recorded else None
    if out is not None:
        _check_out_file(out)
    cluster = agent_access.Cluster(kubeconfig, context)
    issued = asyncio.run(
        agent_access.create(cluster, node, expires=lifetime, server=server, registration=record)
    )
    if out is not None:
        private_files.write(out, issued.kubeconfig.reveal().encode())
    typer.echo(_json(issued, out) if output is Output.JSON else _text(issued, out), nl=False)


@app.command("revoke")
def revoke(
    node: Node,
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Revoke the identity of NODE's agent and delete its roles and bindings.

    \b
    Examples:
      bramley agent-access revoke mac-1
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import agent_access

    cluster = agent_access.Cluster(kubeconfig, context)
    revoked = asyncio.run(agent_access.revoke(cluster, node))
    if output is Output.JSON:
        typer.echo(to_json({"node": node, "revoked": revoked}))
    elif revoked:
        typer.echo(f"Revoked the agent of {node}; its tokens are no longer valid.")
    else:
        typer.echo(f"{node} has no agent identity; nothing changed.")


@app.command("policy")
def policy(
    *,
    output: ManifestFormat = ManifestOutput.YAML,
) -> None:
    """Print the namespace, ClusterRole and admission policy that all agents share.

    The policy restricts the writes of agents. `create` applies these manifests itself; print them to review or deploy them.

    \b
    Examples:
      bramley agent-access policy | kubectl apply -f -
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.access import agent_objects
    from bramley.access import policy as writes
    from bramley.api.crds import to_yaml
    from bramley.api.meta import to_wire

    shared = (agent_objects.namespace(), agent_objects.shared_role(), *writes.objects())
    manifests = [to_wire(part) for part in shared]
    if output is ManifestOutput.JSON:
        typer.echo(to_json({"apiVersion": "v1", "kind": "List", "items": manifests}))
    else:
        typer.echo("---\n".join(to_yaml(manifest) for manifest in manifests), nl=False)


@app.command("controller")
def controller(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.AUTO,
) -> None:
    """Run the controller that grants agents access to what their Pods refer to.

    A real cluster needs this process; the embedded API authorizes agents by their Pods itself. Several replicas may run: they
    elect a leader.

    \b
    Examples:
      bramley agent-access controller --kubeconfig ./kubeconfig
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import agent_access
    from bramley.base import log

    log.configure(level=log_level, form=log_format)
    logger = log.get(__name__)
    cluster = agent_access.Cluster(kubeconfig, context)
    asyncio.run(
        agent_access.run_controller(
            cluster, on_leading=lambda: logger.info("Started agent access controller")
        )
    )


def _check_out_file(out: Path) -> None:
    from bramley.access import kubeconfig
    from bramley.apiserver.pki import private_files

    content = private_files.read(out)
    if content and not kubeconfig.is_agent_kubeconfig(content):
        raise BadConfiguration(
            f"{out} exists and is not an agent's kubeconfig; choose another file with --out"
        )
    private_files.check_writable(out)


def _text(issued: Issued, out: Path | None) -> str:
    if out is None:
        return issued.kubeconfig.reveal()
    identity = issued.identity
    return (
        f"ServiceAccount {agent.service_account(identity.node)} in {access.NAMESPACE} is the agent of {identity.node}.\n"
        f"Its kubeconfig is {out}; the token is valid until {_expiry(issued)}.\n"
    )


def _json(issued: Issued, out: Path | None) -> str:
    identity = issued.identity
    kubeconfig = {"kubeconfig": issued.kubeconfig.reveal()} if out is None else {"file": str(out)}
    result = {
        "node": identity.node,
        "namespace": access.NAMESPACE,
        "serviceAccount": agent.service_account(identity.node),
        "server": issued.server,
        "expires": _expiry(issued),
        **kubeconfig,
    }
    return to_json(result) + "\n"


def _expiry(issued: Issued) -> str:
    return f"{issued.identity.expires:%Y-%m-%dT%H:%M:%SZ}"
