"""The simulated GitHub with one App: accounts, access, faults, workflow runs and webhooks, wired together."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bramley.base.clock import Clock
from bramley.sim.github.access import Access
from bramley.sim.github.actions import Actions
from bramley.sim.github.faults import Faults
from bramley.sim.github.records import ORGANISATION, Account, Job, Repository
from bramley.sim.github.webhooks import DeliverySettings, Hook, Webhooks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

RUNNERS, ADMINISTRATION, ACTIONS = "organization_self_hosted_runners", "administration", "actions"
# Of the account that was added first.
FIRST_INSTALLATION = 100
_FIRST_KEY = "first"


@dataclass(frozen=True, slots=True)
class Settings:
    """The App, the limit of requests per hour, and how jobs and webhooks behave."""

    app_id: str = "1"
    requests_per_hour: int = 5000
    picks_randomly: bool = False
    deliveries: DeliverySettings = field(default_factory=DeliverySettings)
    seed: int = 0
    # Where simulated guests reach it, such as http://127.0.0.1:8088; empty: their runners run a scripted job instead of one of ours.
    base_url: str = ""
    # Ids of runs, jobs and runners follow this one.
    first_id: int = 1000


class SimulatedGitHub:
    """One App and the accounts that have installed it; webhooks are sent inside `running`."""

    def __init__(
        self,
        key: RSAPublicKey,
        *,
        clock: Clock,
        settings: Settings | None = None,
        hook: Hook | None = None,
        on_registration: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings = settings or Settings()
        rng = random.Random(f"github/{settings.seed}")
        self.clock = clock
        self.access = Access(settings.app_id, clock, settings.requests_per_hour, rng)
        self.access.keys[_FIRST_KEY] = key
        self.faults = Faults()
        self.webhooks = Webhooks(hook, clock, rng, settings.deliveries)
        self.actions = Actions(
            clock,
            rng,
            self._on_job,
            picks_randomly=settings.picks_randomly,
            base_url=settings.base_url,
            first_id=settings.first_id,
            # Called when a runner that keeps its registration is registered or removed.
            on_registration=on_registration,
        )
        self.accounts: dict[str, Account] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send webhooks while the context lasts."""
        async with self.webhooks.running():
            yield

    def add_account(self, login: str, *, type: str = ORGANISATION) -> Account:
        """Add an organisation or a user that has installed the App."""
        installation_id = FIRST_INSTALLATION + len(self.accounts)
        account = Account(login, type, installation_id, {RUNNERS, ADMINISTRATION, ACTIONS})
        self.accounts[login.lower()] = account
        return account

    def add_repository(self, owner: str, name: str) -> Repository:
        """Add a repository to an account."""
        account = self.accounts[owner.lower()]
        count = sum(len(each.repositories) for each in self.accounts.values())
        repository = Repository(10_000 + count, account.login, name)
        account.repositories[name.lower()] = repository
        return repository

    def _on_job(self, job: Job, action: str) -> None:
        """Send the webhook of a job."""
        repository = job.run.repository
        account = self.accounts[repository.owner.lower()]
        payload = {
            "action": action,
            "workflow_job": job.json(),
            "repository": {
                "id": repository.id,
                "name": repository.name,
                "full_name": repository.full_name,
                "owner": account.json(),
                "private": True,
            },
            "installation": {"id": account.installation_id},
            "sender": {"login": "octocat", "type": "User"},
        }
        if account.type == ORGANISATION:
            payload["organization"] = {"login": account.login}
        self.webhooks.emit("workflow_job", payload)
