"""Finding the server: an explicit file, KUBECONFIG, the Pod we run in, or the file in the home folder.

This is the one place of the package that looks at the process's environment, and only when none is handed in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bramley.base import errors
from bramley.base.clock import Clock, SystemClock
from bramley.kube import identity
from bramley.kube import kubeconfig as kubeconfigs
from bramley.kube.access import Access
from bramley.kube.client import Client, Settings
from bramley.kube.credentials import Credentials, Fixed, Replaceable, TokenFile
from bramley.kube.http import HttpTransport
from bramley.kube.tls import Trust

POD_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def connect(
    kubeconfig: Path | str | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    settings: Settings | None = None,
) -> Client:
    """Return a client of the server that the arguments, the environment or the machine name; nothing is sent yet."""
    found = find(kubeconfig, context, environment=environment, clock=clock)
    return Client(HttpTransport(found), clock=clock, settings=settings)


def find(
    explicit: Path | str | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    pod_files: Path = POD_FILES,
) -> Access:
    """Return the server, the trust and the identity to use."""
    variables = os.environ if environment is None else environment
    time = clock or SystemClock()
    files = [Path(explicit)] if explicit is not None else _listed(variables)
    if not files and variables.get("KUBERNETES_SERVICE_HOST"):
        if context is not None:
            raise errors.BadConfiguration(
                f"context {context!r}: inside a cluster there is none; give a kubeconfig too"
            )
        return in_cluster(variables, clock=time, files=pod_files)
    return _of_files(files or [_in_home(variables)], context, time, variables)


def _of_files(
    files: Sequence[Path], context: str | None, clock: Clock, variables: Mapping[str, str]
) -> Access:
    """Return what kubeconfigs say; a token that is replaced in them is found without a restart, another server is not."""

    def read() -> Access:
        chosen = kubeconfigs.read(files, context=context)
        return identity.access(chosen, clock=clock, environment=variables)

    def read_again() -> Credentials:
        again = read()
        if again.server != found.server:
            raise errors.BadConfiguration(f"{files[0]}: names another server now; start again")
        return again.credentials

    found = read()
    if not isinstance(found.credentials, Fixed):
        # Token files and plugins are asked anew by themselves.
        return found
    return replace(found, credentials=Replaceable(found.credentials, read_again))


def in_cluster(variables: Mapping[str, str], *, clock: Clock, files: Path = POD_FILES) -> Access:
    """Return the server of the cluster that this Pod runs in, as the Pod's ServiceAccount."""
    host = variables.get("KUBERNETES_SERVICE_HOST", "")
    port = variables.get("KUBERNETES_SERVICE_PORT", "443")
    authority = files / "ca.crt"
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        trust=Trust(_pod_file(authority), source=str(authority)),
        credentials=TokenFile(files / "token", clock=clock),
        namespace=_pod_file(files / "namespace").strip(),
    )


def _pod_file(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.BadConfiguration(
            f"{path}: cannot be read; give the Pod a ServiceAccount token, or set KUBECONFIG"
        ) from error


def _listed(variables: Mapping[str, str]) -> list[Path]:
    """Return the files of KUBECONFIG that exist; kubectl skips the others too, but not all of them."""
    named = [Path(text) for text in variables.get("KUBECONFIG", "").split(os.pathsep) if text]
    existing = [path for path in named if path.exists()]
    return existing or named[:1]


def _in_home(variables: Mapping[str, str]) -> Path:
    return Path(variables.get("HOME", "/")) / ".kube" / "config"
