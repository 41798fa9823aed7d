"""Who may call the simulated Scaleway: API keys of one project or of the whole organisation, and their rate limits."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bramley.base.clock import Clock
from bramley.sim.scaleway import refusals
from bramley.sim.scaleway.refusals import denied

WINDOW = timedelta(minutes=1)


@dataclass(slots=True, eq=False)
class ApiKey:
    """A secret key with permissions in one project, or in all of them if `project_id` is None."""

    secret: str = field(repr=False)
    project_id: str | None
    used: int = 0
    reset_at: datetime | None = None

    def may_use(self, project_id: str) -> bool:
        """Return whether the key has permissions in a project."""
        return self.project_id in (None, project_id)

    def require(self, project_id: str | None, action: str, resource: str) -> None:
        """Raise a Refusal unless the key may do this; without a project the whole organisation is meant."""
        if self.project_id is not None and self.project_id != project_id:
            raise denied(action, resource)


@dataclass(slots=True, eq=False)
class Access:
    """The keys that are valid, and how many requests each of them may send in a minute; 0 is no limit."""

    clock: Clock
    requests_per_minute: int
    keys: list[ApiKey]

    def authenticate(self, secret: str | None) -> ApiKey:
        """Return the key of a request and count the request; a Refusal if the key is unknown or over its limit."""
        if not secret:
            raise refusals.unauthenticated("invalid_argument")
        found = [
            each for each in self.keys if hmac.compare_digest(each.secret.encode(), secret.encode())
        ]
        if not found:
            raise refusals.unauthenticated("not_found")
        self._count(found[0])
        return found[0]

    def _count(self, key: ApiKey) -> None:
        now = self.clock.now()
        if key.reset_at is None or now >= key.reset_at:
            key.used, key.reset_at = 0, now + WINDOW
        key.used += 1
        if 0 < self.requests_per_minute < key.used:
            seconds = max(1, round((key.reset_at - now).total_seconds()))
            raise refusals.too_many_requests(self.requests_per_minute, seconds)
