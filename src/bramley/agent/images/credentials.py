"""Credentials for registries: from the imagePullSecrets of a Pod, or from a file of this host, both in Docker's format.

They are passed to tart by environment variables only: never by arguments, which every process can read, and never by `tart login`,
which needs a keychain. A Secret that is missing or malformed is not an error: the image may be public. One that this host may not
read is an error only if the image is not public; that happens before a Pod refers to it, when an image is staged.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from bramley.agent.tart.driver import Credentials
from bramley.agent.tart.references import Reference
from bramley.api import core
from bramley.api.docker_config import DockerConfig, Login
from bramley.base import errors, log
from bramley.base.secret import Secret
from bramley.kube.client import Client

logger = log.get(__name__)

_CONFIG = ".dockerconfigjson"
_LEGACY_CONFIG = ".dockercfg"
_DEADLINE = timedelta(seconds=20)
# The second if the content is nested too deeply.
_MALFORMED = (msgspec.DecodeError, RecursionError)
# Larger than any Secret may be.
_MAX_FILE_BYTES = 1 << 20


class SecretForbidden(errors.Unavailable):
    """The host may not read a pull secret, and has no other credentials for the registry."""


class Keyring:
    """Finds the credentials for an image."""

    def __init__(self, kube: Client, host_file: Path | None = None) -> None:
        self._kube = kube.within(_DEADLINE)
        self._host_file = host_file

    async def find(
        self, reference: Reference, *, namespace: str, secrets: Sequence[str]
    ) -> Credentials | None:
        """Return the first match of the Secrets in their order, then of this host; None if nothing matches.

        Raise SecretForbidden if nothing matches and one of the Secrets may not be read.
        """
        forbidden = []
        for name in secrets:
            try:
                credentials = choose(await self._secret_entries(namespace, name), reference)
            except errors.Forbidden:
                forbidden.append(f"{namespace}/{name}")
                continue
            if credentials is not None:
                return credentials
        credentials = choose(self._host_entries(), reference)
        if credentials is None and forbidden:
            raise SecretForbidden(
                f"this host may not read Secret {', '.join(forbidden)}, because none of its Pods refers to it; "
                "set registryCredentialsFile for the host"
            )
        return credentials

    async def _secret_entries(self, namespace: str, name: str) -> Mapping[str, Login]:
        try:
            secret = await self._kube.get(core.Secret, name, namespace=namespace)
        except errors.Forbidden:
            raise
        except (errors.NotFound, errors.Refused) as error:
            logger.warning(
                "Cannot use pull secret", namespace=namespace, name=name, reason=error.reason
            )
            return {}
        try:
            return _read(secret.data)
        except _MALFORMED:
            # The error is not logged: it would quote the secret.
            logger.warning(
                "Cannot use pull secret", namespace=namespace, name=name, reason="Malformed"
            )
            return {}

    def _host_entries(self) -> Mapping[str, Login]:
        if self._host_file is None:
            return {}
        try:
            with self._host_file.open("rb") as file:
                return msgspec.json.decode(file.read(_MAX_FILE_BYTES), type=DockerConfig).auths
        except OSError as error:
            logger.warning("Cannot read the host's registry credentials", error=str(error))
        except _MALFORMED:
            logger.warning("Cannot read the host's registry credentials", error="not valid JSON")
        return {}


def choose(entries: Mapping[str, Login], reference: Reference) -> Credentials | None:
    """Return the credentials with the longest key that matches this image."""
    for key in sorted(entries, key=len, reverse=True):
        if _matches(key, reference) and (login := entries[key].decode()):
            return Credentials(reference.host, login[0], Secret(login[1]))
    return None


def _read(data: Mapping[str, bytes]) -> Mapping[str, Login]:
    if _CONFIG in data:
        return msgspec.json.decode(data[_CONFIG], type=DockerConfig).auths
    return msgspec.json.decode(data.get(_LEGACY_CONFIG, b"{}"), type=dict[str, Login])


def _matches(key: str, reference: Reference) -> bool:
    bare = key.partition("://")[2] or key
    host, _, path = bare.rstrip("/").partition("/")
    # Docker's own keys end in an API version, which is not part of the image's path.
    path = "" if path in {"v1", "v2"} else path
    if host.count(".") != reference.host.count(".") or not fnmatch.fnmatchcase(
        reference.host, host
    ):
        return False
    return not path or f"{reference.path}/".startswith(f"{path}/")
