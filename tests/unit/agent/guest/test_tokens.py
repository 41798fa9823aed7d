"""Tokens of guests: issued for the Pod and renewed in time."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry

from bramley.agent.guest.folders import UserData
from bramley.agent.guest.tokens import Settings, Tokens
from bramley.agent.metrics import AgentMetrics
from bramley.api.meta import Object
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.kube.api_requests import IssuedToken
from tests import virtual_time
from tests.unit.agent.clocks import a_clock
from tests.unit.agent.guest.pods import a_pod

VM = "ns-build-0123456789ab"
HOUR = timedelta(hours=1)
POD = a_pod()


def a_token(issued: datetime, lifetime: timedelta) -> Secret:
    times = {"iat": int(issued.timestamp()), "exp": int((issued + lifetime).timestamp())}
    claims = base64.urlsafe_b64encode(json.dumps(times).encode()).decode().rstrip("=")
    return Secret(f"head.{claims}.signature-{issued.isoformat()}")


@dataclass
class Issuer:
    """Issues tokens of one lifetime while it is up; its clock may differ from ours."""

    lifetime: timedelta = 8 * HOUR
    ahead: timedelta = timedelta(0)
    is_up: bool = True
    issued_tokens: list[tuple[str, ...]] = field(default_factory=list)
    times: list[timedelta] = field(default_factory=list)

    async def request_token(
        self,
        service_account: str,
        namespace: str,
        *,
        audiences: Sequence[str],
        expires: timedelta,
        bound_to: Object | None = None,
    ) -> IssuedToken:
        if not self.is_up:
            raise errors.ApiUnavailable("down")
        assert bound_to is not None
        self.issued_tokens.append(
            (namespace, service_account, *audiences, str(expires), bound_to.uid)
        )
        now = virtual_time.clock().now()
        self.times.append(now - virtual_time.EPOCH)
        return IssuedToken(
            a_token(now + self.ahead, self.lifetime), now + self.ahead + self.lifetime
        )


@dataclass
class Share:
    folders: UserData
    issuer: Issuer
    metrics: AgentMetrics = field(default_factory=lambda: AgentMetrics(CollectorRegistry()))

    def tokens(self, settings: Settings | None = None, clock: Clock | None = None) -> Tokens:
        return Tokens(
            self.issuer,
            self.folders,
            clock=clock or virtual_time.clock(),
            rng=random.Random(1),
            metrics=self.metrics,
            settings=settings or Settings(),
        )

    def in_share(self) -> str:
        return (self.folders.shares(VM).env / "sa_token").read_text()

    def renewals(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "tart_kubelet_token_renewals_total", {"result": result}
        )


def a_share(tmp_path: Path, issuer: Issuer | None = None) -> Share:
    folders = UserData(tmp_path)
    folders.prepare(VM)
    return Share(folders, issuer or Issuer())


@asynccontextmanager
async def kept_fresh(tokens: Tokens) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(tokens.run())
        try:
            # It waits for its first token by now.
            await asyncio.sleep(0)
            yield
        finally:
            task.cancel()


async def test_token_is_for_the_pods_account_and_bound_to_the_pod(tmp_path: Path) -> None:
    share = a_share(tmp_path)

    await share.tokens().issue(POD, VM)

    assert share.issuer.issued_tokens == [
        ("ns", "runner", "tuist-runners-dispatch", "8:00:00", "u-1")
    ]
    assert share.in_share().startswith("head.")


async def test_token_is_renewed_before_it_ends(tmp_path: Path) -> None:
    share = a_share(tmp_path)
    tokens = share.tokens()

    async with kept_fresh(tokens):
        await tokens.issue(POD, VM)
        first = share.in_share()
        await asyncio.sleep(24 * 3600)

    assert share.issuer.times == [HOUR * 6.4 * number for number in range(4)]
    assert share.in_share() != first
    assert share.renewals("done") == 3


async def test_token_with_a_shorter_lifetime_is_renewed_sooner(tmp_path: Path) -> None:
    share = a_share(tmp_path, Issuer(lifetime=HOUR))
    tokens = share.tokens()

    async with kept_fresh(tokens):
        await tokens.issue(POD, VM)
        await asyncio.sleep(2 * 3600)

    assert share.issuer.times == [HOUR * 0.8 * number for number in range(3)]


async def test_clock_skew_renews_neither_late_nor_constantly(tmp_path: Path) -> None:
    for ahead in (-9 * HOUR, 9 * HOUR):
        share = a_share(tmp_path, Issuer(ahead=ahead))
        tokens = share.tokens()
        await share.folders.remove(VM)
        share.folders.prepare(VM)

        async with kept_fresh(tokens):
            await tokens.issue(POD, VM)
            await asyncio.sleep(10 * 3600)

        assert len(share.issuer.issued_tokens) == 2


async def test_clock_that_is_set_back_does_not_keep_a_token_for_too_long(tmp_path: Path) -> None:
    share, clock = a_share(tmp_path), a_clock()
    tokens = share.tokens(clock=clock)
    async with kept_fresh(tokens):
        await tokens.issue(POD, VM)
        await asyncio.sleep(HOUR.total_seconds())
        clock.jump(-5 * HOUR)
        await asyncio.sleep(7 * HOUR.total_seconds())

    assert [round(at / HOUR, 1) for at in share.issuer.times] == [0.0, 6.4]


async def test_very_short_lifetime_does_not_flood_the_server(tmp_path: Path) -> None:
    share = a_share(tmp_path, Issuer(lifetime=timedelta(seconds=1)))
    tokens = share.tokens()

    async with kept_fresh(tokens):
        await tokens.issue(POD, VM)
        await asyncio.sleep(60)

    assert len(share.issuer.issued_tokens) <= 7


async def test_failed_renewal_is_retried_and_the_old_token_stays(tmp_path: Path) -> None:
    share = a_share(tmp_path)
    tokens = share.tokens()

    async with kept_fresh(tokens):
        await tokens.issue(POD, VM)
        first = share.in_share()
        share.issuer.is_up = False
        await asyncio.sleep(7 * 3600)
        assert share.in_share() == first
        share.issuer.is_up = True
        await asyncio.sleep(600)

    assert share.in_share() != first
    assert len(share.issuer.issued_tokens) == 2
    assert (share.renewals("failed") or 0) > 3


async def test_next_agent_continues_the_renewals(tmp_path: Path) -> None:
    share = a_share(tmp_path)
    await share.tokens().issue(POD, VM)
    await asyncio.sleep(3600)
    tokens = share.tokens()

    async with kept_fresh(tokens):
        tokens.track(POD, VM)
        tokens.track(POD, VM)
        await asyncio.sleep(6 * 3600)

    assert share.issuer.times == [timedelta(0), HOUR * 6.4]


async def test_token_that_expired_without_an_agent_is_renewed_at_once(tmp_path: Path) -> None:
    share = a_share(tmp_path)
    await share.tokens().issue(POD, VM)
    await asyncio.sleep(20 * 3600)
    tokens = share.tokens()

    async with kept_fresh(tokens):
        tokens.track(POD, VM)
        await asyncio.sleep(1)

    assert share.issuer.times == [timedelta(0), 20 * HOUR]


async def test_unreadable_token_is_renewed_at_once(tmp_path: Path) -> None:
    for content in ("", "garbage", "a.!.c", "a.e30.c"):
        share = a_share(tmp_path)
        share.folders.write_token(VM, Secret(content))
        tokens = share.tokens()

        async with kept_fresh(tokens):
            tokens.track(POD, VM)
            await asyncio.sleep(1)

        assert len(share.issuer.issued_tokens) == 1


async def test_second_prepare_requests_no_token(tmp_path: Path) -> None:
    share = a_share(tmp_path)
    tokens = share.tokens()

    await tokens.issue(POD, VM)
    await tokens.issue(POD, VM)
    await asyncio.sleep(7 * 3600)
    await tokens.issue(POD, VM)

    assert share.issuer.times == [timedelta(0), 7 * HOUR]


async def test_no_token_is_requested_for_a_deleted_vm(tmp_path: Path) -> None:
    share = a_share(tmp_path)
    tokens = share.tokens()

    async with kept_fresh(tokens):
        await tokens.issue(POD, VM)
        tokens.forget(VM)
        await share.folders.remove(VM)
        await asyncio.sleep(24 * 3600)

    assert len(share.issuer.issued_tokens) == 1
    assert share.folders.vms() == []


async def test_late_renewal_creates_no_folder(tmp_path: Path) -> None:
    share = a_share(tmp_path)
    tokens = share.tokens()

    async with kept_fresh(tokens):
        await tokens.issue(POD, VM)
        await share.folders.remove(VM)
        await asyncio.sleep(8 * 3600)

    assert share.folders.vms() == []


async def test_tokens_of_two_vms_are_renewed_independently(tmp_path: Path) -> None:
    share = a_share(tmp_path)
    share.folders.prepare("second")
    tokens = share.tokens()

    async with kept_fresh(tokens):
        await tokens.issue(POD, VM)
        await asyncio.sleep(3600)
        await tokens.issue(POD, "second")
        await asyncio.sleep(7 * 3600)

    assert share.issuer.times == [timedelta(0), HOUR, HOUR * 6.4, HOUR * 7.4]
