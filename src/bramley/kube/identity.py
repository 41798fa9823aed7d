"""From a chosen context to `Access`: its files read, its credentials made, and everything unusable said so."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.kube import credentials
from bramley.kube.access import Access, checked_url
from bramley.kube.credentials import Credential, Credentials, Fixed, TokenFile
from bramley.kube.exec_plugin import ExecPlugin, Plugin
from bramley.kube.kubeconfig import Chosen, Cluster, Exec, Found, User
from bramley.kube.tls import ClientCertificate, Trust

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXEC_EXTENSION = "client.authentication.k8s.io/exec"


def access(chosen: Chosen, *, clock: Clock, environment: Mapping[str, str]) -> Access:
    """Return how to reach the server of a context as its user."""
    cluster, user = chosen.cluster, chosen.user
    proxy = cluster.part.proxy_url
    return Access(
        server=checked_url(cluster.part.server, cluster.at("server")),
        trust=_trust(cluster),
        credentials=_credentials(chosen, clock, environment),
        headers=_impersonation(user),
        proxy=checked_url(proxy, cluster.at("proxy-url")) if proxy else None,
        compression=not cluster.part.disable_compression,
        namespace=chosen.namespace,
    )


def _trust(cluster: Found[Cluster]) -> Trust:
    part = cluster.part
    given = part.certificate_authority or part.certificate_authority_data
    if part.insecure_skip_tls_verify and given:
        raise errors.BadConfiguration(
            f"{cluster.at('insecure-skip-tls-verify')}: contradicts the certificate authority; "
            "keep one of the two"
        )
    return Trust(
        authorities=_authorities(cluster),
        verify=not part.insecure_skip_tls_verify,
        server_name=part.tls_server_name or None,
        source=cluster.at("certificate-authority"),
    )


def _authorities(cluster: Found[Cluster]) -> str | None:
    part = cluster.part
    if part.certificate_authority_data:
        place = cluster.at("certificate-authority-data")
        return _text(part.certificate_authority_data, place)
    if part.certificate_authority:
        return _file(cluster, "certificate-authority", part.certificate_authority)
    return None


def _credentials(chosen: Chosen, clock: Clock, environment: Mapping[str, str]) -> Credentials:
    user = chosen.user
    part = user.part
    if part.auth_provider is not None:
        raise errors.BadConfiguration(
            f"{user.at('auth-provider')}: Kubernetes removed these; use an exec plugin"
        )
    certificate = _certificate(user)
    if part.token_file:
        return TokenFile(user.path(part.token_file), clock=clock, certificate=certificate)
    header = _header(user)
    if part.exec and header is None and certificate is None:
        plugin = _plugin(user, part.exec, chosen.cluster)
        return ExecPlugin(plugin, clock=clock, environment=environment)
    return Fixed(Credential(header, certificate))


def _header(user: Found[User]) -> Secret | None:
    part = user.part
    if part.token:
        return credentials.bearer(part.token.reveal(), user.at("token"))
    if part.username:
        return credentials.basic(part.username, part.password or Secret(""))
    return None


def _certificate(user: Found[User]) -> ClientCertificate | None:
    part = user.part
    chain = _either(
        user, "client-certificate", part.client_certificate, part.client_certificate_data
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


def _key(user: Found[User]) -> Secret | None:
    part = user.part
    if part.client_key_data:
        text = part.client_key_data.reveal()
        return Secret(_text(_decoded(text, user.at("client-key-data")), user.at("client-key-data")))
    if part.client_key:
        return Secret(_file(user, "client-key", part.client_key))
    return None


def _either(found: Found[Any], field: str, path: str | None, content: bytes | None) -> str | None:
    if content:
        return _text(content, found.at(f"{field}-data"))
    return _file(found, field, path) if path else None


def _decoded(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise errors.BadConfiguration(f"{place}: is not base64; encode the PEM file") from None


def _text(content: bytes, place: str) -> str:
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise errors.BadConfiguration(f"{place}: is not PEM; encode the PEM file") from None


def _file(found: Found[Any], field: str, text: str) -> str:
    path = found.path(text)
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not PEM"
        raise errors.BadConfiguration(
            f"{found.at(field)}: {path} cannot be used ({reason}); name a readable PEM file"
        ) from None


def _plugin(user: Found[User], part: Exec, cluster: Found[Cluster]) -> Plugin:
    place = user.at("exec")
    if part.api_version not in EXEC_VERSIONS:
        known = " or ".join(EXEC_VERSIONS)
        raise errors.BadConfiguration(f"{place}.apiVersion: is {part.api_version!r}; use {known}")
    if not part.command:
        raise errors.BadConfiguration(f"{place}.command: is missing; name the program to run")
    if part.interactive_mode == "Always":
        raise errors.BadConfiguration(
            f"{place}.interactiveMode: is Always, but nobody is there to answer; use Never"
        )
    return Plugin(
        command=_command(user, part.command),
        arguments=tuple(part.args or ()),
        api_version=part.api_version,
        environment={variable.name: variable.value for variable in part.env or ()},
        cluster=_cluster_info(cluster) if part.provide_cluster_info else None,
        install_hint=part.install_hint or "",
        source=place,
    )


def _command(user: Found[User], command: str) -> str:
    # A bare name is looked up on the PATH; anything with a slash is meant from the file's folder.
    return str(user.path(command)) if "/" in command else command


def _cluster_info(cluster: Found[Cluster]) -> dict[str, Any]:
    part = cluster.part
    authorities = (_authorities(cluster) or "").encode()
    told = {
        "server": part.server,
        "tls-server-name": part.tls_server_name,
        "insecure-skip-tls-verify": part.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authorities).decode(),
        "proxy-url": part.proxy_url,
        "disable-compression": part.disable_compression,
        "config": next(
            (e.extension for e in part.extensions or () if e.name == EXEC_EXTENSION), None
        ),
    }
    return {key: value for key, value in told.items() if value}


def _impersonation(user: Found[User]) -> tuple[tuple[str, str], ...]:
    part = user.part
    headers = [("Impersonate-User", part.as_)] if part.as_ else []
    headers += [("Impersonate-Uid", part.as_uid)] if part.as_uid else []
    headers += [("Impersonate-Group", group) for group in part.as_groups or ()]
    for key, values in (part.as_user_extra or {}).items():
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    if not all(value.isprintable() for _, value in headers):
        raise errors.BadConfiguration(
            f"{user.at('as')}: a name, uid, group or extra holds what no header can; remove it"
        )
    return tuple(headers)
