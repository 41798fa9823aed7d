"""What is done to a host over SSH: its configuration is applied, or everything is removed from it.

Each is safe to repeat: a run that was interrupted, or continues on another manager, finds on the host what was done before. A run
claims the host with the epoch of its leader, so a former leader that continues is refused. What a host needs from elsewhere is read
first; if something is missing, the host is not touched, and the attempt does not count.
"""

from __future__ import annotations

import asyncio
import os
import secrets as random_text
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from bramley.access import identity, kubeconfig
from bramley.api import core
from bramley.api.names import access, agent, events, secrets
from bramley.api.rbac import ClusterRoleBinding
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host import actions_runner_job, converge, removal, sequence
from bramley.host.claim import Claim
from bramley.host.connection import Connection
from bramley.host.progress import Progress, Report, StepStarted
from bramley.host.spec import MacSpec
from bramley.kube.client import Client
from bramley.machines import host_configuration
from bramley.machines.host_access import Connect, HostLogin, SharedSecrets, store_host_key
from bramley.machines.host_configuration import HostDefaults, HostSecrets
from bramley.machines.host_operations import OnStep, Operation, Unprepared
from bramley.machines.mac import Mac
from bramley.machines.runner_registration import Resolver
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

_DOCKER_CONFIG = ".dockerconfigjson"
_LATER = timedelta(minutes=5)
# How often it is checked whether the runner of a builder still has its job.
_BUSY_RETRY = timedelta(minutes=1)
# How long a host may take to answer a question of a reconcile.
_LOOK = timedelta(seconds=30)
_RUN_BYTES = 8


class Logins(Protocol):
    """The logins of one kind of Macs."""

    async def of(self, mac: Mac) -> HostLogin:
        """Return the login of a Mac; NotFound or Refused if it is missing or invalid."""
        ...

    async def hash_key(self, mac: Mac) -> bytes:
        """Return a secret that the hash of other secrets is made with; without a request most of the time."""
        ...


@dataclass(frozen=True, slots=True)
class HostWork:
    """Applies configurations to hosts; `epoch` is that of this process's leadership, 0 without election."""

    kube: FencedKube
    # For identities, which are many requests: it checks the leadership before each of them, so that a leader that was suspended in
    # between cannot complete one that its successor has revoked.
    client: Client
    defaults: HostDefaults
    connect: Connect
    secrets: SharedSecrets
    # Where registry credentials of the manager, the key of the tailnet and objects of the existing provider are.
    secrets_namespace: str
    registrations: Resolver
    epoch: Callable[[], int]
    clock: Clock

    async def fingerprint(self, mac: Mac, key: bytes) -> str:
        """Return the hash of the desired configuration of a Mac; NotFound or Refused if it is incomplete or invalid."""
        logins = await self._registry_logins(mac)
        return host_configuration.fingerprint(mac, self.defaults, logins=logins, key=key)

    async def apply(
        self, mac: Mac, logins: Logins, operation: Operation, on_step: OnStep
    ) -> Report:
        """Apply the configuration of a Mac; Unprepared if the host was not touched."""
        login, host_secrets = await self._prepared(mac, logins)
        token = _Token(self.registrations, mac)
        if mac.builder:
            # Requested only by a step that registers the runner: in a bootstrap, or after its labels or its group were changed.
            host_secrets = replace(host_secrets, registration_token=token.request)
        spec = self._spec(mac, host_secrets, operation)
        try:
            async with self.connect(login.login, self.defaults.artifacts.store) as host:
                await self._require_idle_builder(mac, host)
                spec = replace(spec, kubeconfig=await self._kubeconfig(mac))
                report = await self._converge(host, spec, operation, on_step)
        except errors.BramleyError as error:
            if token.error is not None:
                raise Unprepared(events.REGISTRATION_TOKEN_UNAVAILABLE, str(token.error)) from error
            raise
        finally:
            # Also after a failure: the key that was accepted first must be the only one from now on.
            await store_host_key(self.kube, login)
        await self._delete_old_identity(mac)
        return report

    async def clean_up(self, mac: Mac, logins: Logins, on_step: OnStep) -> Report:
        """Remove everything from a Mac that its team owns, except Tart."""
        try:
            login = await logins.of(mac)
        except (errors.NotFound, errors.Refused) as error:
            raise Unprepared(events.CREDENTIALS_UNAVAILABLE, str(error)) from error
        steps = removal.steps(mac.user)
        async with self.connect(login.login, self.defaults.artifacts.store) as host:
            return await converge.apply(
                host, steps, on_progress=_reporting(on_step), claim=self._claim()
            )

    async def runs_job(self, mac: Mac, logins: Logins) -> bool:
        """Return whether the host of a builder shows that its runner has a job; False if the host does not answer."""
        with suppress(errors.BramleyError, TimeoutError):
            async with asyncio.timeout(_LOOK.total_seconds()):
                login = (await logins.of(mac)).login
                async with self.connect(login, self.defaults.artifacts.store) as host:
                    found = await host.probe([actions_runner_job.WORKER])
                    return actions_runner_job.is_busy(found)
        return False

    async def has_identity(self, mac_name: str) -> bool:
        """Return whether the agent of a Mac has an identity; it gets one before the first command on a Mac that was reached."""
        name = agent.service_account(mac_name)
        with suppress(errors.NotFound):
            await self.kube.get(core.ServiceAccount, name, namespace=access.NAMESPACE)
            return True
        return False

    async def revoke(self, mac_name: str) -> None:
        """Revoke the identity of a Mac's agent, its tokens first; that of the existing provider, too."""
        await identity.revoke(self.client, mac_name)
        await self._delete_old(mac_name)

    async def _prepared(self, mac: Mac, logins: Logins) -> tuple[HostLogin, HostSecrets]:
        try:
            login = await logins.of(mac)
            registry = await self._registry_logins(mac, is_fresh=True)
        except (errors.NotFound, errors.Refused, errors.RateLimited, errors.Unavailable) as error:
            raise Unprepared(events.CREDENTIALS_UNAVAILABLE, str(error)) from error
        secrets = HostSecrets(
            password=login.login.password,
            public_keys=login.public_keys,
            registry_credentials=registry,
            tailscale_auth_key=await self._tailscale_key(),
        )
        return login, secrets

    def _spec(self, mac: Mac, secrets: HostSecrets, operation: Operation) -> MacSpec:
        try:
            spec = host_configuration.mac_spec(
                mac, self.defaults, secrets, replace_tart=operation.replace_tart
            )
            sequence.steps(spec, clock=self.clock)
        except errors.Refused as error:
            raise Unprepared(events.INVALID_CONFIGURATION, str(error), after=_LATER) from error
        return spec

    async def _converge(
        self, host: Connection, spec: MacSpec, operation: Operation, on_step: OnStep
    ) -> Report:
        steps = sequence.steps(spec, clock=self.clock)
        return await converge.apply(
            host,
            steps,
            on_progress=_reporting(on_step),
            claim=self._claim(),
            later_steps=lambda stamps: sequence.retired_part_steps(steps, stamps),
            no_reboot=not operation.may_reboot,
        )

    async def _require_idle_builder(self, mac: Mac, host: Connection) -> None:
        """Leave a builder alone while its runner has a job; also while it is verified, or set up again after a failed proof."""
        if mac.builder is None:
            return
        if actions_runner_job.is_busy(await host.probe([actions_runner_job.WORKER])):
            text = "the runner of this builder runs a job"
            raise Unprepared(events.BUILDER_BUSY, text, after=_BUSY_RETRY)

    async def _kubeconfig(self, mac: Mac) -> Secret:
        """Return a kubeconfig with a new token; an agent keeps its own as long as that one is valid."""
        try:
            issued = await identity.create(
                self.client,
                mac.name,
                expires=self.defaults.token_lifetime,
                registration=host_configuration.registration(mac),
            )
        except errors.LeaseLost:
            raise
        except errors.BramleyError as error:
            raise Unprepared(events.NODE_IDENTITY_UNAVAILABLE, str(error)) from error
        server, trust = self.defaults.server, self.defaults.trust
        return kubeconfig.render(mac.name, issued.token, server=server, trust=trust)

    async def _registry_logins(self, mac: Mac, *, is_fresh: bool = False) -> Secret | None:
        own = mac.settings.registry_credentials_secret_name
        name = own or self.defaults.settings.registry_credentials_secret_name
        if not name:
            return None
        namespace = mac.namespace if own else self.secrets_namespace
        return await self.secrets.value(namespace, name, _DOCKER_CONFIG, is_fresh=is_fresh)

    async def _tailscale_key(self) -> Secret | None:
        tailnet = self.defaults.tailnet
        if tailnet is None:
            return None
        try:
            return await self.secrets.value(
                self.secrets_namespace, tailnet.auth_key_secret_name, secrets.TAILSCALE_AUTH_KEY
            )
        except errors.BramleyError as error:
            raise Unprepared(events.TAILSCALE_AUTH_KEY_UNAVAILABLE, str(error)) from error

    async def _delete_old_identity(self, mac: Mac) -> None:
        """Delete what the existing provider made for the agent, which has another identity now."""
        try:
            await self._delete_old(mac.name)
        except errors.LeaseLost:
            raise
        except errors.BramleyError as error:
            # Deleted with the machine at the latest.
            logger.warning("Old identity not deleted", machine=mac.name, reason=str(error))

    async def _delete_old(self, name: str) -> None:
        account, namespace = agent.service_account(name), self.secrets_namespace
        if namespace == access.NAMESPACE:
            # The account of the same name is the present one.
            return
        # Authority first.
        for kind, object_name, place in (
            (ClusterRoleBinding, account, None),
            (core.Secret, agent.token_secret(name), namespace),
            (core.ServiceAccount, account, namespace),
        ):
            with suppress(errors.NotFound):
                found = await self.kube.get(kind, object_name, namespace=place)
                await self.kube.delete(found)

    def _claim(self) -> Claim:
        by = f"process {os.getpid()} on {socket.gethostname()}"
        return Claim(run=random_text.token_hex(_RUN_BYTES), by=by, epoch=self.epoch())


@dataclass(slots=True)
class _Token:
    """Requests the registration token of a builder, and keeps the error, which does not count as a failed attempt."""

    registrations: Resolver
    mac: Mac
    error: errors.BramleyError | None = None

    async def request(self) -> Secret:
        try:
            registration = await self.registrations.resolve(self.mac.namespace, self.mac.builder)
        except errors.BramleyError as error:
            self.error = error
            raise
        if registration is None:
            raise errors.InvalidSpec("the machine has no spec.ghActionsRunner")
        return registration.token


def _reporting(on_step: OnStep) -> Callable[[Progress], None]:
    """Report each step that has something to do, with its place among all steps."""
    numbers = {name: number for number, name in enumerate(sequence.NAMES, start=1)}

    def report(progress: Progress) -> None:
        if isinstance(progress, StepStarted) and progress.commands:
            name = progress.step.name
            place = f" ({numbers[name]}/{len(numbers)})" if name in numbers else ""
            on_step(f"{name}{place}")

    return report
