"""Loads the client configuration: an explicit file, KUBECONFIG, the Pod of this process, or the file in the home directory.

This is the only module of the package that reads the process's environment, and only when none is passed in.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bramley.base import errors
from bramley.base.clock import Clock, SystemClock
from bramley.base.secret import Secret
from bramley.kube import credentials
from bramley.kube import kubeconfig as kubeconfigs
from bramley.kube.client import Client, Settings
from bramley.kube.config import ClientConfig, checked_url
from bramley.kube.credentials import (
    Credential,
    Credentials,
    ReloadingCredentials,
    StaticCredentials,
    TokenFile,
)
from bramley.kube.exec_plugin import ExecPlugin, Plugin
from bramley.kube.http import HttpTransport
from bramley.kube.kubeconfig import Cluster, Exec, Located, SelectedContext, User
from bramley.kube.tls import ClientCertificate, Trust

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXEC_EXTENSION = "client.authentication.k8s.io/exec"


def config_of(
    selected: SelectedContext, *, clock: Clock, environment: Mapping[str, str]
) -> ClientConfig:
    """Return the configuration of a context."""
    cluster, user = selected.cluster, selected.user
    proxy = cluster.entry.proxy_url
    return ClientConfig(
        server=checked_url(cluster.entry.server, cluster.at("server")),
        trust=_trust(cluster),
        credentials=_credentials(selected, clock, environment),
        headers=_impersonation(user),
        proxy=checked_url(proxy, cluster.at("proxy-url")) if proxy else None,
        compression=not cluster.entry.disable_compression,
        namespace=selected.namespace,
    )


def _trust(cluster: Located[Cluster]) -> Trust:
    entry = cluster.entry
    authority = entry.certificate_authority or entry.certificate_authority_data
    if entry.insecure_skip_tls_verify and authority:
        raise errors.BadConfiguration(
            f"{cluster.at('insecure-skip-tls-verify')}: contradicts the certificate authority; "
            "keep one of the two"
        )
    return Trust(
        authorities=_authorities(cluster),
        verify=not entry.insecure_skip_tls_verify,
        server_name=entry.tls_server_name or None,
        source=cluster.at("certificate-authority"),
    )


def _authorities(cluster: Located[Cluster]) -> str | None:
    entry = cluster.entry
    if entry.certificate_authority_data:
        location = cluster.at("certificate-authority-data")
        return _text(entry.certificate_authority_data, location)
    if entry.certificate_authority:
        return _file(cluster, "certificate-authority", entry.certificate_authority)
    return None


def _credentials(
    selected: SelectedContext, clock: Clock, environment: Mapping[str, str]
) -> Credentials:
    user = selected.user
    entry = user.entry
    if entry.auth_provider is not None:
        raise errors.BadConfiguration(
            f"{user.at('auth-provider')}: Kubernetes removed these; use an exec plugin"
        )
    certificate = _certificate(user)
    # As in client-go, tokenFile takes precedence over token.
    if entry.token_file:
        return TokenFile(user.path(entry.token_file), clock=clock, certificate=certificate)
    header = _header(user)
    if entry.exec and header is None and certificate is None:
        plugin = _plugin(user, entry.exec, selected.cluster)
        return ExecPlugin(plugin, clock=clock, environment=environment)
    return StaticCredentials(Credential(header, certificate))


def _header(user: Located[User]) -> Secret | None:
    entry = user.entry
    if entry.token:
        return credentials.bearer(entry.token.reveal(), user.at("token"))
    if entry.username:
        return credentials.basic(entry.username, entry.password or Secret(""))
    return None


def _certificate(user: Located[User]) -> ClientCertificate | None:
    entry = user.entry
    chain = _either(
        user, "client-certificate", entry.client_certificate, entry.client_certificate_data
    )
    key = _key(user)
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        missing = "client-certificate" if chain is None else "client-key"
        raise errors.BadConfiguration(
            f"{user.at(missing)}: is missing; a certificate and its key go together"
        )
    return ClientCertificate(chain, key, source=user.at("client-certificate"))


def _key(user: Located[User]) -> Secret | None:
    entry = user.entry
    if entry.client_key_data:
        text = entry.client_key_data.reveal()
        return Secret(_text(_decoded(text, user.at("client-key-data")), user.at("client-key-data")))
    if entry.client_key:
        return Secret(_file(user, "client-key", entry.client_key))
    return None


def _either(
    located: Located[Any], field: str, path: str | None, content: bytes | None
) -> str | None:
    if content:
        return _text(content, located.at(f"{field}-data"))
    return _file(located, field, path) if path else None


def _decoded(text: str, location: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise errors.BadConfiguration(f"{location}: is not base64; encode the PEM file") from None


def _text(content: bytes, location: str) -> str:
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise errors.BadConfiguration(f"{location}: is not PEM; encode the PEM file") from None


def _file(located: Located[Any], field: str, text: str) -> str:
    path = located.path(text)
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not PEM"
        raise errors.BadConfiguration(
            f"{located.at(field)}: {path} cannot be used ({reason}); name a readable PEM file"
        ) from None


def _plugin(user: Located[User], entry: Exec, cluster: Located[Cluster]) -> Plugin:
    field = user.at("exec")
    if entry.api_version not in EXEC_VERSIONS:
        usable = " or ".join(EXEC_VERSIONS)
        raise errors.BadConfiguration(f"{field}.apiVersion: is {entry.api_version!r}; use {usable}")
    if not entry.command:
        raise errors.BadConfiguration(f"{field}.command: is missing; name the program to run")
    if entry.interactive_mode == "Always":
        raise errors.BadConfiguration(
            f"{field}.interactiveMode: is Always, but there is no terminal; use Never"
        )
    return Plugin(
        command=_command(user, entry.command),
        arguments=tuple(entry.args or ()),
        api_version=entry.api_version,
        environment={variable.name: variable.value for variable in entry.env or ()},
        cluster=_cluster_info(cluster) if entry.provide_cluster_info else None,
        install_hint=entry.install_hint or "",
        source=field,
    )


def _command(user: Located[User], command: str) -> str:
    # A bare name is looked up on the PATH; a path is relative to the file's directory.
    return str(user.path(command)) if "/" in command else command


def _cluster_info(cluster: Located[Cluster]) -> dict[str, Any]:
    entry = cluster.entry
    authorities = (_authorities(cluster) or "").encode()
    info = {
        "server": entry.server,
        "tls-server-name": entry.tls_server_name,
        "insecure-skip-tls-verify": entry.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authorities).decode(),
        "proxy-url": entry.proxy_url,
        "disable-compression": entry.disable_compression,
        "config": next(
            (e.extension for e in entry.extensions or () if e.name == EXEC_EXTENSION), None
        ),
    }
    return {key: value for key, value in info.items() if value}


def _impersonation(user: Located[User]) -> tuple[tuple[str, str], ...]:
    entry = user.entry
    headers = [("Impersonate-User", entry.as_)] if entry.as_ else []
    headers += [("Impersonate-Uid", entry.as_uid)] if entry.as_uid else []
    headers += [("Impersonate-Group", group) for group in entry.as_groups or ()]
    for key, values in (entry.as_user_extra or {}).items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    if not all(value.isprintable() for _, value in headers):
        raise errors.BadConfiguration(
            f"{user.at('as')}: a name, uid, group or extra contains characters that are not allowed in a header; remove them"
        )
    return tuple(headers)


POD_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def connect(
    kubeconfig: Path | str | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    settings: Settings | None = None,
) -> Client:
    """Return a client for the server of the arguments, the environment or the machine; nothing is sent yet."""
    config = load(kubeconfig, context, environment=environment, clock=clock)
    return Client(HttpTransport(config), clock=clock, settings=settings)


def load(
    explicit: Path | str | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    pod_files: Path = POD_FILES,
) -> ClientConfig:
    """Return the configuration of the server to use."""
    variables = os.environ if environment is None else environment
    time = clock or SystemClock()
    files = [Path(explicit)] if explicit is not None else _kubeconfig_files(variables)
    if not files and variables.get("KUBERNETES_SERVICE_HOST"):
        if context is not None:
            raise errors.BadConfiguration(
                f"context {context!r}: there are no contexts inside a cluster; give a kubeconfig too"
            )
        return in_cluster_config(variables, clock=time, files=pod_files)
    in_home = Path(variables.get("HOME", "/"), ".kube", "config")
    return _from_files(files or [in_home], context, time, variables)


def _from_files(
    files: Sequence[Path], context: str | None, clock: Clock, variables: Mapping[str, str]
) -> ClientConfig:
    """Return the configuration of kubeconfig files; a replaced token is reloaded without a restart, another server is not."""

    def read() -> ClientConfig:
        selected = kubeconfigs.read(files, context=context)
        return config_of(selected, clock=clock, environment=variables)

    def read_again() -> Credentials:
        again = read()
        # Credentials of another server must not be sent to this one.
        if again.server != config.server:
            raise errors.BadConfiguration(
                f"{files[0]}: names another server now; restart this process"
            )
        return again.credentials

    config = read()
    if not isinstance(config.credentials, StaticCredentials):
        # Token files and plugins reload themselves.
        return config
    return replace(config, credentials=ReloadingCredentials(config.credentials, read_again))


def in_cluster_config(
    variables: Mapping[str, str], *, clock: Clock, files: Path = POD_FILES
) -> ClientConfig:
    """Return the configuration of the cluster that this Pod runs in, as the Pod's ServiceAccount."""
    host = variables.get("KUBERNETES_SERVICE_HOST", "")
    port = variables.get("KUBERNETES_SERVICE_PORT", "443")
    authority = files / "ca.crt"
    return ClientConfig(
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


def _kubeconfig_files(variables: Mapping[str, str]) -> list[Path]:
    """Return the files of KUBECONFIG that exist, or the first one if none does; kubectl skips missing files, too."""
    listed = [Path(text) for text in variables.get("KUBECONFIG", "").split(os.pathsep) if text]
    existing = [path for path in listed if path.exists()]
    return existing or listed[:1]
