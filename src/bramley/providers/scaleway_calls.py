"""Calls of Scaleway's SDK from the event loop: deadlines, retries of what may be repeated, and waits that Scaleway requests."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from bramley.base import errors
from bramley.base.backoff import Backoff
from bramley.providers.scaleway_account import Account
from bramley.providers.scaleway_errors import undecodable
from bramley.providers.threads import Runner, Threads

if TYPE_CHECKING:
    from bramley.providers.scaleway_sdk import Sdk, Send

T = TypeVar("T")

_BACKOFF = Backoff(initial=timedelta(milliseconds=300), maximum=timedelta(seconds=5))
# The scope of IAM's calls, which belong to no zone.
IAM = "iam"


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits: one attempt, all attempts of a call, an operation of several calls; retries; threads for each zone."""

    attempt_deadline: timedelta = timedelta(seconds=10)
    call_deadline: timedelta = timedelta(seconds=30)
    deadline: timedelta = timedelta(seconds=90)
    retries: int = 3
    backoff: Backoff = _BACKOFF
    threads_per_zone: int = 4


@dataclass(frozen=True, slots=True)
class Call:
    """What a call is about, its zone or `IAM`, and whether sending it twice is harmless."""

    about: str
    scope: str
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Transport:
    """How requests are sent: in threads over HTTP, or in place into a simulated Scaleway of this process."""

    runner: Runner
    send: Send | None = None


class Calls:
    """Runs functions of the SDK in threads; `account` is read again for each attempt, so that keys can be rotated."""

    def __init__(
        self,
        account: Callable[[], Account],
        settings: Settings,
        rng: random.Random,
        transport: Transport | None = None,
    ) -> None:
        self._account = account
        self._settings = settings
        self._rng = rng
        self._transport = transport or Transport(Threads(settings.threads_per_zone))
        self._waits: dict[str, float] = {}

    async def send(self, call: Call, function: Callable[[Sdk], T]) -> T:
        """Return what the function returns, within the deadline of the call."""
        failures: list[errors.Unavailable] = []
        async with within(self._settings.call_deadline, call.about, failures):
            return await self._attempts(call, function, failures)

    async def _attempts(
        self, call: Call, function: Callable[[Sdk], T], failures: list[errors.Unavailable]
    ) -> T:
        while True:
            try:
                return await self._authorized(call, function)
            except errors.HostBusy:
                raise
            except errors.Unavailable as error:
                failures.append(error)
                if not call.repeatable or len(failures) > self._settings.retries:
                    raise
            delay = self._settings.backoff.delay(len(failures), self._rng)
            await asyncio.sleep(delay.total_seconds())

    async def _authorized(self, call: Call, function: Callable[[Sdk], T]) -> T:
        account = self._account()
        try:
            return await self._attempt(call, account, function)
        except errors.Unauthorized as error:
            renewed = self._account()
            if renewed == account:
                raise errors.Unauthorized(f"{error}; sent with {account.access_key}") from None
        # The refused request was not processed, so this is safe for any call.
        return await self._attempt(call, renewed, function)

    async def _attempt(self, call: Call, account: Account, function: Callable[[Sdk], T]) -> T:
        self._check_wait(call)
        limit = self._settings.attempt_deadline
        ends_at = time.monotonic() + limit.total_seconds()

        def run() -> T:
            from bramley.providers import scaleway_sdk

            send = self._transport.send or scaleway_sdk.over_http
            return _decoded(call, function, scaleway_sdk.Sdk(account, send, ends_at))

        try:
            return await self._transport.runner.run(
                call.scope, run, deadline=limit, about=call.about
            )
        except errors.RateLimited as error:
            self._waits[call.scope] = _now() + error.after.total_seconds()
            raise

    def _check_wait(self, call: Call) -> None:
        wait = self._waits.get(call.scope, 0) - _now()
        if wait > 0:
            raise errors.RateLimited(
                f"{call.about}: Scaleway's rate limit requests a wait of {wait:.0f} s",
                after=timedelta(seconds=wait),
            )


@asynccontextmanager
async def within(
    deadline: timedelta, about: str, failures: Sequence[errors.Unavailable] = ()
) -> AsyncIterator[None]:
    """Raise TimedOut, with the last of the failures, if the block takes longer than the deadline."""
    try:
        async with asyncio.timeout(deadline.total_seconds()):
            yield
    except TimeoutError:
        last = f"; the last attempt failed: {failures[-1]}" if failures else ""
        seconds = deadline.total_seconds()
        raise errors.TimedOut(f"{about}: no response within {seconds:g} s{last}") from None


def _now() -> float:
    # The loop's time, which may be virtual.
    return asyncio.get_running_loop().time()


def _decoded(call: Call, function: Callable[[Sdk], T], sdk: Sdk) -> T:
    """Run the function; whatever else it raises is about the content of a response."""
    with errors.Captured() as captured:
        return function(sdk)
    error = captured.error
    # InvalidSpec is about an id in the response; ids of callers were checked before.
    if isinstance(error, errors.BramleyError) and not isinstance(error, errors.InvalidSpec):
        raise error
    # Outside of the block, so that the error is not chained to one that holds the response.
    raise undecodable(call.about, error or ValueError())
