"""The registration of a builder's runner at its forge, and the runners that the forge lists, as Protocols; a new forge is one new class.

A registration has a token that lives for about an hour, so it is resolved for each attempt of a bootstrap, and never stored.
Credentials are read for each call; tokens of GitHub's API are cached as long as the credentials stay the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from bramley.github.installation import Installation
from bramley.github.owners import Organisation
from bramley.github.responses import Runner
from bramley.kube.client import Client


@dataclass(frozen=True, slots=True)
class RunnerRegistration:
    """What a host needs to register its runner."""

    organisation: str
    labels: tuple[str, ...]
    version: str
    token: Secret
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class RegisteredRunner:
    """A runner that the forge lists."""

    id: int
    online: bool
    busy: bool


class RunnerBusy(errors.BadRequest):
    """The runner runs a job, and cannot be removed before it has ended."""


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


class RunnerDirectory(Protocol):
    """Finds and removes registered runners by their names, with the credentials of their spec.

    Errors: those of `Resolver`. Repeating is safe.
    """

    async def find(
        self, namespace: str, spec: GHActionsRunner, name: str
    ) -> RegisteredRunner | None:
        """Return the runner with exactly this name; None if it is not registered."""
        ...

    async def remove(self, namespace: str, spec: GHActionsRunner, name: str) -> bool:
        """Remove the runner with exactly this name; False if there was none, RunnerBusy while it runs a job."""
        ...


class GitHubAppResolver:
    """Resolves, finds and removes runners of GitHub organisations with a GitHub App, whose credentials are in a Secret."""

    def __init__(self, kube: Client, github: GitHubClient, *, clock: Clock) -> None:
        self._kube = kube
        self._github = github
        self._clock = clock
        # By the name of the Secret, with the App ID and the fingerprint of the key that it had.
        self._apps: dict[str, tuple[tuple[str, str], GitHubApp]] = {}

    async def resolve(
        self, namespace: str, spec: GHActionsRunner | None
    ) -> RunnerRegistration | None:
        """Return a registration with a fresh token; None without a spec."""
        if spec is None:
            return None
        async with self._installation(namespace, spec) as installation:
            token = await installation.registration_token(Organisation(spec.gh_org))
        labels = tuple(filter(None, map(str.strip, spec.gh_runner_labels.split(","))))
        version = spec.gh_runner_version
        return RunnerRegistration(spec.gh_org, labels, version, token.token, token.expires_at)

    async def find(
        self, namespace: str, spec: GHActionsRunner, name: str
    ) -> RegisteredRunner | None:
        """Return the runner with exactly this name; None if it is not registered."""
        async with self._installation(namespace, spec) as installation:
            runner = await _runner(installation, spec, name)
        return RegisteredRunner(runner.id, runner.is_online, runner.busy) if runner else None

    async def remove(self, namespace: str, spec: GHActionsRunner, name: str) -> bool:
        """Remove the runner with exactly this name; False if there was none, RunnerBusy while it runs a job."""
        async with self._installation(namespace, spec) as installation:
            runner = await _runner(installation, spec, name)
            if runner is None:
                return False
            try:
                await installation.remove_runner(Organisation(spec.gh_org), runner.id)
            except errors.NotFound:
                return False
            except errors.BadRequest as error:
                raise RunnerBusy(
                    f"the runner {name} of {spec.gh_org} cannot be removed while it runs a job; "
                    f"wait until the job has ended: {error}"
                ) from None
        return True

    @asynccontextmanager
    async def _installation(
        self, namespace: str, spec: GHActionsRunner
    ) -> AsyncIterator[Installation]:
        """Yield the installation of the Secret; that it does not manage the organisation is an error that names the Secret."""
        if not spec.gh_app_secret_name:
            raise errors.InvalidSpec("spec.ghActionsRunner.ghAppSecretName is missing")
        place = f"Secret {namespace}/{spec.gh_app_secret_name}"
        installation_id, credentials = _credentials(await self._secret(namespace, spec), place)
        try:
            yield self._app(place, credentials).installation(installation_id)
        except (errors.NotFound, errors.Forbidden) as error:
            raise errors.Refused(
                f"{place}: this installation of the App does not manage the organisation {spec.gh_org}: {error}"
            ) from None

    def _app(self, place: str, credentials: AppCredentials) -> GitHubApp:
        """Return the App with these credentials, with its tokens unless they have changed."""
        identity = credentials.app_id, credentials.key.fingerprint
        known = self._apps.get(place)
        if known is None or known[0] != identity:
            app = GitHubApp(credentials, self._github, clock=self._clock)
            known = self._apps[place] = identity, app
        return known[1]

    async def _secret(self, namespace: str, spec: GHActionsRunner) -> dict[str, bytes]:
        name = spec.gh_app_secret_name
        try:
            return (await self._kube.get(core.Secret, name, namespace=namespace)).data
        except errors.NotFound:
            raise errors.InvalidSpec(f"Secret {namespace}/{name} does not exist") from None


async def _runner(installation: Installation, spec: GHActionsRunner, name: str) -> Runner | None:
    found = await installation.runners(Organisation(spec.gh_org), name=name)
    return found[0] if found else None


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
