"""`bramley crds`: the CustomResourceDefinitions of our kinds, for `kubectl apply`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from bramley.base.errors import BadConfiguration


class Output(StrEnum):
    """What form manifests are printed in."""

    YAML = "yaml"
    JSON = "json"


def crds(
    *,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="Form of the output.")
    ] = Output.YAML,
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="Only this kind, such as RunnerPool.", metavar="KIND"),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions of Bramley's kinds.

    \b
    Examples:
      bramley crds | kubectl apply -f -
      bramley crds --kind RunnerPool -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.api import crds as definitions

    manifests = _chosen(definitions.manifests(), kind)
    if output is Output.JSON:
        import msgspec

        listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
        printed = manifests[0] if kind else listed
        typer.echo(msgspec.json.format(msgspec.json.encode(printed)))
    else:
        typer.echo(definitions.as_yaml(manifests), nl=False)


def _chosen(manifests: list[dict[str, Any]], kind: str | None) -> list[dict[str, Any]]:
    if kind is None:
        return manifests
    names = [one["spec"]["names"] for one in manifests]
    wanted = kind.lower()
    for manifest, called in zip(manifests, names, strict=True):
        if wanted in {called["kind"].lower(), called["plural"], *called.get("shortNames", ())}:
            return [manifest]
    known = ", ".join(called["kind"] for called in names)
    raise BadConfiguration(f"--kind {kind!r} is none of ours; there are {known}")
