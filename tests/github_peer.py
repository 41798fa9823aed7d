"""A simulated GitHub and a client of it, in process or over HTTP on a free loopback port."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry

from bramley.app.listen_address import Address, bind, bound_address
from bramley.app.sim_github import serving
from bramley.base.clock import Clock
from bramley.github.app import GitHubApp
from bramley.github.client import GitHubClient, Transport
from bramley.github.http import HttpTransport
from bramley.github.installation import Installation
from bramley.github.owners import Organisation, Repository
from bramley.kube.in_process import InProcessTransport
from bramley.sim.github.application import ENTERPRISE_PREFIX, application
from bramley.sim.github.github import Settings, SimulatedGitHub
from bramley.sim.github.records import USER
from bramley.sim.github.webhooks import Hook
from tests import github_keys

TARGETS = ("in-process", "http")
ACME = Organisation("acme")
APP = Repository("acme", "app")
# A repository of a user, who has no organisation.
DOTFILES = Repository("jane", "dotfiles")


@dataclass(slots=True)
class SkewedClock:
    """A clock that differs from another one."""

    base: Clock
    offset: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return self.base.now() + self.offset

    def monotonic(self) -> float:
        return self.base.monotonic()


@dataclass(slots=True)
class Peer:
    """The simulated GitHub, a client of it and the clock of the client, which a test may move."""

    github: SimulatedGitHub
    client: GitHubClient
    clock: SkewedClock

    def app(self, key: str = "first", *, form: str = "pkcs1", app_id: str = "1") -> GitHubApp:
        credentials = github_keys.credentials(key, form, app_id)
        return GitHubApp(credentials, self.client, clock=self.clock)

    def installation(self, login: str = "acme") -> Installation:
        return self.app().installation(self.github.accounts[login].installation_id)


def simulated_github(
    clock: Clock, settings: Settings | None = None, hook: Hook | None = None
) -> SimulatedGitHub:
    key = github_keys.rsa_key().public_key()
    github = SimulatedGitHub(key, clock=clock, settings=settings, hook=hook)
    github.add_account(ACME.login)
    github.add_account(DOTFILES.owner, type=USER)
    for repository in (APP, DOTFILES):
        github.add_repository(repository.owner, repository.name)
    return github


def peer(github: SimulatedGitHub, transport: Transport | None = None) -> Peer:
    clock = SkewedClock(github.clock)
    client = GitHubClient(
        transport or InProcessTransport(application(github)),
        clock=clock,
        registry=CollectorRegistry(),
        rng=random.Random(1),
    )
    return Peer(github, client, clock)


@asynccontextmanager
async def connected(github: SimulatedGitHub, target: str) -> AsyncIterator[Peer]:
    """Connect a client in process, or over HTTP by the path of GitHub Enterprise."""
    if target == "in-process":
        yield peer(github)
        return
    loopback = Address("127.0.0.1", 0)
    bound = bind(loopback)
    url = f"http://{bound_address(loopback, bound)}{ENTERPRISE_PREFIX}"
    async with serving(application(github), bound), HttpTransport(url) as transport:
        yield peer(github, transport)
