"""Tokens of guests: requested for the Pod's ServiceAccount, bound to the Pod, and replaced in the share before they expire.

The stored token itself contains its expiry, so a restarted agent continues the renewals. A failed renewal is retried with backoff
for as long as the VM is tracked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from bramley.agent import pod_fields
from bramley.agent.guest.folders import UserData
from bramley.agent.metrics import DONE, FAILED, AgentMetrics
from bramley.api.meta import Object
from bramley.api.names import dispatch
from bramley.api.pod import Pod
from bramley.base import errors, jwt_claims, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.kube.api_requests import IssuedToken

logger = log.get(__name__)

MIN_RENEWAL_DELAY = timedelta(seconds=10)
MAX_SLEEP = timedelta(minutes=5)


class TokenIssuer(Protocol):
    """Issues tokens of ServiceAccounts."""

    async def request_token(
        self,
        service_account: str,
        namespace: str,
        *,
        audiences: Sequence[str],
        expires: timedelta,
        bound_to: Object | None = None,
    ) -> IssuedToken:
        """Return a new token."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """Audience and lifetime of tokens, and the share of the lifetime after which they are renewed."""

    audience: str = dispatch.TOKEN_AUDIENCE
    lifetime: timedelta = timedelta(seconds=dispatch.TOKEN_SECONDS_MACOS)
    renewed_after: float = 0.8
    backoff: Backoff = field(
        default_factory=lambda: Backoff(initial=timedelta(seconds=5), maximum=timedelta(minutes=5))
    )


@dataclass(slots=True)
class _Renewal:
    """When the token of a VM is due, by both clocks; the earlier one counts.

    The monotonic clock stops while the host sleeps, and the time of day may be set back.
    """

    pod: Pod
    due: datetime
    due_monotonic: float
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Tokens:
    """Issues the tokens of guests; `run` renews those of running VMs."""

    kube: TokenIssuer
    folders: UserData
    _: KW_ONLY
    clock: Clock
    rng: random.Random
    metrics: AgentMetrics
    settings: Settings = field(default_factory=Settings)
    _renewals: dict[str, _Renewal] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def issue(self, pod: Pod, vm: str) -> None:
        """Write a token into the VM's share, unless it has one that is not due, and renew it from now on."""
        due = self._due(vm)
        if due is None or due <= self.clock.now():
            due = await self._write(pod, vm)
        self._track(vm, pod, due)

    def track(self, pod: Pod, vm: str) -> None:
        """Renew the token that a VM already has, as after a restart of the agent; an unreadable one is due now."""
        if vm not in self._renewals:
            self._track(vm, pod, self._due(vm) or self.clock.now())

    def forget(self, vm: str) -> None:
        """Stop renewing the token of this VM."""
        self._renewals.pop(vm, None)

    async def run(self) -> None:
        """Renew tokens as they become due, until cancelled."""
        while True:
            # Cleared before the renewals: a VM that is tracked meanwhile must end the wait below.
            self._changed.clear()
            renewals = self._renewals.items()
            for vm in [name for name, each in renewals if self._time_left(each) <= timedelta()]:
                await self._renew(vm)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._sleep_seconds()):
                    await self._changed.wait()

    async def _renew(self, vm: str) -> None:
        # It may have been forgotten while other tokens were renewed.
        renewal = self._renewals.get(vm)
        if renewal is None:
            return
        try:
            due = await self._write(renewal.pod, vm)
        except (errors.BramleyError, OSError) as error:
            renewal.failures += 1
            delay = self.settings.backoff.delay(renewal.failures, self.rng)
            self._schedule(renewal, self.clock.now() + delay)
            self.metrics.token_renewals.of(FAILED).inc()
            logger.warning("Guest token not renewed", vm=vm, error=error, retry_after=delay)
            return
        self._schedule(renewal, due)
        renewal.failures = 0
        self.metrics.token_renewals.of(DONE).inc()

    async def _write(self, pod: Pod, vm: str) -> datetime:
        """Write a new token into a share and return when it is due for renewal."""
        issued = await self.kube.request_token(
            pod_fields.service_account(pod),
            pod.namespace or "",
            audiences=[self.settings.audience],
            expires=self.settings.lifetime,
            bound_to=pod,
        )
        self.folders.write_token(vm, issued.token)
        now = self.clock.now()
        claims = _claims(issued.token)
        # Both claims are from the server's clock; ours may differ.
        lifetime = issued.expires - now if claims is None else claims.lifetime
        return now + max(lifetime * self.settings.renewed_after, MIN_RENEWAL_DELAY)

    def _due(self, vm: str) -> datetime | None:
        """Return when the token in a share is due; None if there is none that can be read."""
        claims = _claims(self.folders.read_token(vm))
        if claims is None:
            return None
        return claims.expires - claims.lifetime * (1 - self.settings.renewed_after)

    def _track(self, vm: str, pod: Pod, due: datetime) -> None:
        renewal = self._renewals[vm] = _Renewal(pod, due, 0.0)
        self._schedule(renewal, due)
        self._changed.set()

    def _schedule(self, renewal: _Renewal, due: datetime) -> None:
        renewal.due = due
        renewal.due_monotonic = self.clock.monotonic() + (due - self.clock.now()).total_seconds()

    def _time_left(self, renewal: _Renewal) -> timedelta:
        monotonic_left = timedelta(seconds=renewal.due_monotonic - self.clock.monotonic())
        return min(renewal.due - self.clock.now(), monotonic_left)

    def _sleep_seconds(self) -> float | None:
        """Return the seconds until the next renewal; None while no VM is tracked."""
        if not self._renewals:
            return None
        time_left = max(min(map(self._time_left, self._renewals.values())), timedelta(0))
        # Bounded: a sleep of the host stops its timers, and the time of day may be set.
        return min(time_left, MAX_SLEEP).total_seconds()


class _Claims(msgspec.Struct, frozen=True):
    """The times of a token."""

    exp: int
    iat: int

    @property
    def expires(self) -> datetime:
        return datetime.fromtimestamp(self.exp, UTC)

    @property
    def lifetime(self) -> timedelta:
        return max(timedelta(seconds=self.exp - self.iat), timedelta(0))


def _claims(token: Secret | None) -> _Claims | None:
    """Return the times of a token; it comes from the server or from our own file, so its signature is not verified."""
    return jwt_claims.decode(token.reveal().strip(), _Claims) if token else None
