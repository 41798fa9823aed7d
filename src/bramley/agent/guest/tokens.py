"""Tokens of guests: minted for the Pod's ServiceAccount, bound to the Pod, and minted anew into the share before they end.

The file itself tells when its token ends, so an agent that starts again goes on where the last one stopped. A token that
cannot be renewed is tried again with backoff for as long as its VM is kept.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from bramley.agent import metrics
from bramley.agent.guest.folders import UserData
from bramley.agent.metrics import AgentMetrics
from bramley.agent.pods import fields
from bramley.api.meta import Object
from bramley.api.names import dispatch
from bramley.api.pod import Pod
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.kube.api_requests import IssuedToken

logger = log.get(__name__)

SHORTEST_PAUSE = timedelta(seconds=10)
LONGEST_REST = timedelta(minutes=5)
_PARTS = 3


class TokenIssuer(Protocol):
    """Mints tokens of ServiceAccounts."""

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
    """For whom tokens are good, how long they live, and after which part of that life they are renewed."""

    audience: str = dispatch.TOKEN_AUDIENCE
    lifetime: timedelta = timedelta(seconds=dispatch.TOKEN_SECONDS_MACOS)
    renewed_after: float = 0.8
    backoff: Backoff = field(
        default_factory=lambda: Backoff(initial=timedelta(seconds=5), maximum=timedelta(minutes=5))
    )


@dataclass(slots=True)
class _Kept:
    """A VM whose token is kept fresh, and when to look at it next: by the time of day, or by seconds that never jump.

    A sleep of the host stops the seconds, and somebody may set the time of day back; the first of both counts.
    """

    pod: Pod
    due: datetime
    due_at: float
    failures: int = 0


class Tokens:
    """Gives guests their tokens, and keeps those of running VMs fresh while `run` runs."""

    def __init__(
        self,
        kube: TokenIssuer,
        folders: UserData,
        *,
        clock: Clock,
        rng: random.Random,
        counted: AgentMetrics,
        settings: Settings | None = None,
    ) -> None:
        self._kube = kube
        self._folders = folders
        self._clock = clock
        self._rng = rng
        self._metrics = counted
        self._settings = settings or Settings()
        self._kept: dict[str, _Kept] = {}
        self._news = asyncio.Event()

    async def give(self, pod: Pod, vm: str) -> None:
        """Mint a token into the VM's share, unless a fresh one is there, and keep it fresh from now on."""
        held = self._held_until(vm)
        if held is not None and held > self._clock.now():
            self._keep(vm, pod, held)
            return
        self._keep(vm, pod, await self._write(pod, vm))

    def keep(self, pod: Pod, vm: str) -> None:
        """Keep the token fresh that a VM has already, as after a restart of the agent; one that is unreadable is due now."""
        if vm not in self._kept:
            self._keep(vm, pod, self._held_until(vm) or self._clock.now())

    def forget(self, vm: str) -> None:
        """Renew no more for this VM."""
        self._kept.pop(vm, None)

    async def run(self) -> None:
        """Renew tokens as they become due, until cancelled."""
        while True:
            self._news.clear()
            for vm in [
                name for name, kept in self._kept.items() if self._left(kept) <= timedelta()
            ]:
                await self._renew(vm)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rest()):
                    await self._news.wait()

    async def _renew(self, vm: str) -> None:
        kept = self._kept.get(vm)
        if kept is None:
            return
        try:
            due = await self._write(kept.pod, vm)
        except (errors.BramleyError, OSError) as error:
            kept.failures += 1
            pause = self._settings.backoff.delay(kept.failures, self._rng)
            self._put_off(kept, self._clock.now() + pause)
            self._metrics.token_renewals.of(metrics.FAILED).inc()
            logger.warning("A guest's token cannot be renewed yet", vm=vm, error=error, again=pause)
            return
        self._put_off(kept, due)
        kept.failures = 0
        self._metrics.token_renewals.of(metrics.DONE).inc()

    async def _write(self, pod: Pod, vm: str) -> datetime:
        """Mint a token into a share and return when the next one is due."""
        issued = await self._kube.request_token(
            fields.service_account(pod),
            pod.namespace or "",
            audiences=[self._settings.audience],
            expires=self._settings.lifetime,
            bound_to=pod,
        )
        self._folders.write_token(vm, issued.token)
        now = self._clock.now()
        claims = _claims(issued.token)
        # Its own two times are of one clock; ours may differ from the server's.
        life = issued.expires - now if claims is None else claims.life
        return now + max(life * self._settings.renewed_after, SHORTEST_PAUSE)

    def _held_until(self, vm: str) -> datetime | None:
        """Return when the token in a share is due; None if there is none that can be read."""
        claims = _claims(self._folders.read_token(vm))
        if claims is None:
            return None
        return claims.ends - claims.life * (1 - self._settings.renewed_after)

    def _keep(self, vm: str, pod: Pod, due: datetime) -> None:
        kept = self._kept[vm] = _Kept(pod, due, 0.0)
        self._put_off(kept, due)
        self._news.set()

    def _put_off(self, kept: _Kept, due: datetime) -> None:
        kept.due = due
        kept.due_at = self._clock.monotonic() + (due - self._clock.now()).total_seconds()

    def _left(self, kept: _Kept) -> timedelta:
        seconds = timedelta(seconds=kept.due_at - self._clock.monotonic())
        return min(kept.due - self._clock.now(), seconds)

    def _rest(self) -> float | None:
        """Return the seconds until the next look; None while there is nothing to look at."""
        if not self._kept:
            return None
        left = max(min(map(self._left, self._kept.values())), timedelta(0))
        # Sleep stops the timer of a host but not its clock, and a clock may be set.
        return min(left, LONGEST_REST).total_seconds()


class _Claims(msgspec.Struct, frozen=True):
    """The times that a token says of itself."""

    exp: int
    iat: int

    @property
    def ends(self) -> datetime:
        return datetime.fromtimestamp(self.exp, UTC)

    @property
    def life(self) -> timedelta:
        return max(timedelta(seconds=self.exp - self.iat), timedelta(0))


def _claims(token: Secret | None) -> _Claims | None:
    """Return the times of a token; it is ours or fresh from the server, so it is not checked."""
    parts = token.reveal().strip().split(".") if token else []
    if len(parts) != _PARTS:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return None
