"""`bramley crds`: the CustomResourceDefinitions of our kinds, for `kubectl apply`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli.options import ManifestFormat, ManifestOutput, to_json


def crds(
    *,
    output: ManifestFormat = ManifestOutput.YAML,
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="Print only this kind, such as RunnerPool.", metavar="KIND"),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions of Bramley's kinds.

    \b
    Examples:
      bramley crds | kubectl apply -f -
      bramley crds --kind RunnerPool -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.api import crds as definitions

    manifests = _select(definitions.manifests(), kind)
    if output is ManifestOutput.JSON:
        many = {"apiVersion": "v1", "kind": "List", "items": manifests}
        typer.echo(to_json(manifests[0] if kind else many))
    else:
        typer.echo(definitions.as_yaml(manifests), nl=False)


def _select(manifests: list[dict[str, Any]], kind: str | None) -> list[dict[str, Any]]:
    if kind is None:
        return manifests
    for manifest in manifests:
        names = manifest["spec"]["names"]
        if kind.lower() in {names["kind"].lower(), names["plural"], *names.get("shortNames", ())}:
            return [manifest]
    kinds = ", ".join(manifest["spec"]["names"]["kind"] for manifest in manifests)
    raise BadConfiguration(f"--kind {kind!r} is unknown; choose one of {kinds}")
