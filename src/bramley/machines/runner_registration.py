"""The registration of a builder's runner at its forge, as a Protocol; a new forge is one new class.

A registration has a token that lives for about an hour, so it is resolved for each attempt of a bootstrap, and never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from bramley.api import core
from bramley.api.names import secrets
from bramley.api.scaleway_machine import GHActionsRunner
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.github import app_keys
from bramley.github.app import GitHubApp
from bramley.github.app_keys import AppCredentials
from bramley.github.client import GitHubClient
from bramley.github.owners import Organisation
from bramley.kube.client import Client


@dataclass(frozen=True, slots=True)
class RunnerRegistration:
    """What a host needs to register its runner."""

    organisation: str
    labels: tuple[str, ...]
    version: str
    token: Secret
    expires_at: datetime


class Resolver(Protocol):
    """Resolves the runner of a spec."""

    async def resolve(
        self, namespace: str, spec: GHActionsRunner | None
    ) -> RunnerRegistration | None:
        """Return a registration with a fresh token; None without a spec, for which no API is called.

        Credentials are read from the namespace of the machine only. Errors: Unavailable, RateLimited, or Refused, such as
        InvalidSpec with every missing field. None of them contains a credential. Repeating is safe: unused tokens expire.
        """
        ...


class RegisteredRunner(Protocol):
    """A runner as its forge lists it."""

    @property
    def online(self) -> bool:
        """Return whether it is connected."""
        ...


class RunnerDirectory(Protocol):
    """Finds and removes the runners of builders at their forge."""

    async def find(
        self, namespace: str, spec: GHActionsRunner | None, name: str
    ) -> RegisteredRunner | None:
        """Return a runner, or None if it is not registered."""
        ...

    async def remove(self, namespace: str, spec: GHActionsRunner | None, name: str) -> bool:
        """Remove a runner; False if there was none."""
        ...


class GitHubAppResolver:
    """Resolves runners of GitHub organisations with a GitHub App, whose credentials are in a Secret."""

    def __init__(self, kube: Client, github: GitHubClient, *, clock: Clock) -> None:
        self._kube = kube
        self._github = github
        self._clock = clock

    async def resolve(
        self, namespace: str, spec: GHActionsRunner | None
    ) -> RunnerRegistration | None:
        """Return a registration with a fresh token; None without a spec."""
        if spec is None:
            return None
        if not spec.gh_app_secret_name:
            raise errors.InvalidSpec("spec.ghActionsRunner.ghAppSecretName is missing")
        place = f"Secret {namespace}/{spec.gh_app_secret_name}"
        installation_id, credentials = _credentials(await self._secret(namespace, spec), place)
        app = GitHubApp(credentials, self._github, clock=self._clock)
        try:
            token = await app.installation(installation_id).registration_token(
                Organisation(spec.gh_org)
            )
        except (errors.NotFound, errors.Forbidden) as error:
            raise errors.Refused(
                f"{place}: this installation of the App does not manage the organisation {spec.gh_org}: {error}"
            ) from None
        labels = tuple(filter(None, map(str.strip, spec.gh_runner_labels.split(","))))
        version = spec.gh_runner_version
        return RunnerRegistration(spec.gh_org, labels, version, token.token, token.expires_at)

    async def _secret(self, namespace: str, spec: GHActionsRunner) -> dict[str, bytes]:
        name = spec.gh_app_secret_name
        try:
            return (await self._kube.get(core.Secret, name, namespace=namespace)).data
        except errors.NotFound:
            raise errors.InvalidSpec(f"Secret {namespace}/{name} does not exist") from None


def _credentials(values: dict[str, bytes], place: str) -> tuple[int, AppCredentials]:
    """Return the id of the installation and the App; ids are trimmed, the key is taken as it is."""
    fields = (secrets.APP_ID, secrets.INSTALLATION_ID, secrets.PRIVATE_KEY)
    missing = [field for field in fields if not values.get(field, b"").strip()]
    if missing:
        raise errors.InvalidSpec(f"{place}: missing {', '.join(missing)}")
    app_id, installation_id = (
        values[field].decode("ascii", "replace").strip() for field in fields[:2]
    )
    if not installation_id.isdecimal():
        raise errors.InvalidSpec(f"{place}: {secrets.INSTALLATION_ID} is not a number")
    key = app_keys.load(values[secrets.PRIVATE_KEY], f"{place}, {secrets.PRIVATE_KEY}")
    return int(installation_id), AppCredentials(app_id, key)
