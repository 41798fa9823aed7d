"""The process of `bramley machines`: the controllers of Macs in one manager, with leader election and probes.

Without credentials of Scaleway only Macs that a team owns are reconciled.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry

from bramley.access.identity import MIN_TOKEN_LIFETIME
from bramley.api.host_settings import HostSettings
from bramley.api.names import groups
from bramley.app import agent_server, config_files, machine_artifacts, machine_definitions
from bramley.app.agent_access import Cluster
from bramley.app.machine_artifacts import ArtifactSettings
from bramley.base import errors, log
from bramley.base.clock import Clock, SystemClock
from bramley.github.client import GitHubClient
from bramley.github.http import DEFAULT_API_URL
from bramley.github.http import HttpTransport as GitHubTransport
from bramley.host import ssh
from bramley.host.artifacts import ArtifactStore
from bramley.host.connection import Connection
from bramley.host.spec import Egress
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig
from bramley.kube.http import HttpTransport
from bramley.machines import controllers
from bramley.machines.host_access import Connect, Login
from bramley.machines.host_configuration import HostDefaults, TailnetSettings
from bramley.machines.release import fenced_account
from bramley.machines.runner_registration import GitHubAppResolver
from bramley.providers import scaleway_account
from bramley.providers.scaleway import ScalewayProvider
from bramley.providers.scaleway_account import Account
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings

logger = log.get(__name__)

_KEYS = (scaleway_account.ACCESS_KEY, scaleway_account.SECRET_KEY, scaleway_account.PROJECT_ID)
_VARIABLES = (*_KEYS, scaleway_account.API_URL)


@dataclass(frozen=True, slots=True)
class ScalewayCredentials:
    """The variables of the account, and a folder with files of the same names, which take precedence."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: Path | None = None

    def account(self) -> Account:
        """Return the account; files are read again at each call, so that keys can be rotated."""
        return scaleway_account.account_from(self._values())

    def find(self) -> Callable[[], Account] | None:
        """Return the function that reads the account, or None without any credential; BadConfiguration if some are missing."""
        values = self._values()
        if self.folder is None and not any(values.get(name) for name in _KEYS):
            return None
        self.account()
        return self.account

    def _values(self) -> dict[str, str]:
        found = {name: self.environment[name] for name in _VARIABLES if name in self.environment}
        for name in _VARIABLES if self.folder is not None else ():
            path = (self.folder or Path()) / name
            if path.exists():
                found[name] = config_files.secret(path, field="--scaleway-credentials-dir").reveal()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    """What all hosts of the manager share, beside the files."""

    cpu: int = 8
    memory_mb: int = 16_384
    max_pods: int = 2
    settings: HostSettings = field(default_factory=HostSettings)
    egress: Egress = field(default_factory=Egress)
    tailnet: TailnetSettings | None = None
    token_lifetime: timedelta = timedelta(hours=24)
    binds_to_address: bool = False
    # Empty: found in the cluster.
    api_server_url: str = ""
    client_authority_file: Path | None = None

    def __post_init__(self) -> None:
        if self.token_lifetime < MIN_TOKEN_LIFETIME:
            raise errors.BadConfiguration("--token-lifetime must be at least 10 minutes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The cluster, the provider, the hosts, the files, the endpoints, and the lease."""

    artifacts: ArtifactSettings
    cluster: Cluster = field(default_factory=Cluster)
    scaleway: ScalewayCredentials = field(default_factory=ScalewayCredentials)
    hosts: HostOptions = field(default_factory=HostOptions)
    machines: controllers.Settings = field(default_factory=controllers.Settings)
    github_api_url: str = DEFAULT_API_URL
    manager: ManagerSettings = field(default_factory=ManagerSettings)
    leader_elect: bool = True
    # Empty: the namespace of the Pod of this process, or of the kubeconfig's context.
    lease_namespace: str = ""


async def run(settings: Settings, *, on_leading: Callable[[], None]) -> None:
    """Run the controllers until a signal arrives; `on_leading` is called once they reconcile."""
    async with opened(settings, clock=SystemClock()) as manager:
        await _run_until_signalled(manager, on_leading)


@asynccontextmanager
async def opened(
    settings: Settings, *, clock: Clock, connect: Connect | None = None
) -> AsyncIterator[Manager]:
    """Return a manager of the controllers, to be run; by default they connect to Macs over SSH."""
    account = settings.scaleway.find()
    with _naming("--github-api-url"):
        github = GitHubTransport(settings.github_api_url)
    config = config_loader.load(settings.cluster.kubeconfig, settings.cluster.context)
    async with Client(HttpTransport(config)) as kube, github:
        await machine_definitions.require(kube, is_rented=account is not None)
        defaults = await host_defaults(kube, config, settings)
        registry = CollectorRegistry()
        forge = GitHubClient(github, clock=clock, registry=registry)
        resolver = GitHubAppResolver(kube, forge, clock=clock)
        parts = controllers.Parts(
            client=kube,
            defaults=defaults,
            connect=connect or over_ssh(clock),
            registrations=resolver,
            runners=resolver,
            clock=clock,
            registry=registry,
            provider=provider_of(account),
        )
        yield _manager(parts, settings, settings.lease_namespace or config.namespace)


async def host_defaults(kube: Client, config: ClientConfig, settings: Settings) -> HostDefaults:
    """Return what all hosts share; BadConfiguration names the flag of what is missing or invalid."""
    hosts = settings.hosts
    authority = agent_server.client_authority(hosts.client_authority_file, config)
    artifacts = await machine_artifacts.load(settings.artifacts)
    return HostDefaults(
        artifacts=artifacts,
        server=await agent_server.find(kube, config, hosts.api_server_url),
        trust=config.trust,
        client_authority=authority,
        host_cpu=hosts.cpu,
        host_memory_mb=hosts.memory_mb,
        max_pods=hosts.max_pods,
        settings=hosts.settings,
        egress=hosts.egress,
        tailnet=hosts.tailnet,
        token_lifetime=hosts.token_lifetime,
        binds_to_address=hosts.binds_to_address,
    )


def over_ssh(clock: Clock) -> Connect:
    """Return the function that connects to Macs over SSH."""

    def connect(login: Login, artifacts: ArtifactStore) -> AbstractAsyncContextManager[Connection]:
        credentials = ssh.Credentials(private_keys=login.private_keys, password=login.password)
        target = ssh.Target(
            host=login.address,
            port=login.port,
            user=login.user,
            credentials=credentials,
            host_keys=login.host_key,
            name=login.name,
        )
        return ssh.open(
            target, clock=clock, artifacts=artifacts, connect_timeout=login.connect_timeout
        )

    return connect


def provider_of(
    account: Callable[[], Account] | None,
) -> Callable[[Callable[[], None]], ScalewayProvider] | None:
    """Return the function that makes the provider, whose requests are fenced by a check of the leadership; None without an account."""
    if account is None:
        missing = ", ".join(_KEYS)
        logger.warning(
            "Reconciling only MacHosts, without credentials of Scaleway", missing=missing
        )
        return None
    return lambda check: ScalewayProvider(fenced_account(account, check))


def _manager(parts: controllers.Parts, settings: Settings, lease_namespace: str) -> Manager:
    candidate = f"{socket.gethostname()}_{uuid.uuid4()}"
    election = LeaderElectionSettings(lease_namespace, groups.MACHINES_LEASE, candidate)
    manager = Manager(
        parts.client,
        clock=parts.clock,
        rng=random.Random(),
        registry=parts.registry,
        settings=replace(settings.manager, election=election if settings.leader_elect else None),
    )
    controllers.add(manager, parts, settings.machines)
    return manager


async def _run_until_signalled(manager: Manager, on_leading: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, manager.stop)
    async with asyncio.TaskGroup() as group:
        notification = group.create_task(_call_when_leading(manager, on_leading))
        await manager.run()
        notification.cancel()


async def _call_when_leading(manager: Manager, on_leading: Callable[[], None]) -> None:
    await manager.leading.wait()
    on_leading()


@contextmanager
def _naming(flag: str) -> Iterator[None]:
    """Raise errors of a value with its flag."""
    try:
        yield
    except errors.BadConfiguration as error:
        raise errors.BadConfiguration(f"{flag}: {error}") from None
