"""The options and arguments that the commands about jobs share, and the texts of others made safe for a terminal."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli.options import to_json

if TYPE_CHECKING:
    from bramley.app.jobs_client import Target

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="BRAMLEY_DISPATCH_URL",
        help="URL of the dispatch server; it gets the token of the kubeconfig.",
        show_default="the URL that the cluster publishes in the ConfigMap bramley-dispatch",
        metavar="URL",
    ),
]
InsecureHttp = Annotated[
    bool,
    typer.Option(
        "--insecure-http",
        help="Send the token over http:// to another machine too; anyone on the network can read it.",
    ),
]
JobId = Annotated[str, typer.Argument(help="The job, as ID or job/ID.", metavar="ID")]

JOB_KINDS = frozenset({"job", "jobs"})
_REPLACEMENT = "\ufffd"
_MAX_ID = 2**63 - 1


def job_id(text: str) -> int:
    """Return the id in ID or job/ID."""
    kind, slash, number = text.rpartition("/")
    is_number = number.isascii() and number.isdigit() and len(number) <= len(str(_MAX_ID))
    if not is_number or (slash and kind not in JOB_KINDS) or not 0 < int(number) <= _MAX_ID:
        raise BadConfiguration(
            f"{text!r} is not a job; write GitHub's job id, as bramley jobs list shows it"
        )
    return int(number)


def target(
    server: str | None,
    insecure_http: bool,  # noqa: FBT001 - a flag of the command line
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> Target:
    """Return the dispatch server that the options select."""
    from bramley.app.agent_access import Cluster
    from bramley.app.jobs_client import Target

    return Target(
        cluster=Cluster(kubeconfig, context),
        namespace=namespace,
        server=server,
        insecure_http=insecure_http,
    )


def printable(text: str, *, keep: str = "") -> str:
    """Return a text of others with control characters replaced, which would change a terminal's state or the order of its text."""
    return "".join(
        _REPLACEMENT if character not in keep and _is_control(character) else character
        for character in text
    )


def safe_json(value: object) -> str:
    """Return a value as indented JSON; control characters, which JSON itself permits in part, are escaped."""
    return "".join(
        json.dumps(character)[1:-1] if character != "\n" and _is_control(character) else character
        for character in to_json(value)
    )


def _is_control(character: str) -> bool:
    # Format characters reverse the direction of text; the last two are line separators.
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
