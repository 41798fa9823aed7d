"""The client against a simulated GitHub that fails, limits and hangs, for hours of virtual time."""

from __future__ import annotations

import asyncio
import io
import traceback
from collections.abc import Iterator
from datetime import timedelta

import pytest

from bramley.base import errors, log
from bramley.github.installation import RunnerSpec
from bramley.sim.github.faults import Fault
from bramley.sim.github.github import Settings
from tests import github_keys, virtual_time
from tests.github_peer import ACME, APP, Peer, peer, simulated_github
from tests.hook_receiver import SECRET, HookReceiver


def a_peer(settings: Settings | None = None) -> Peer:
    return peer(simulated_github(virtual_time.clock(), settings))


async def test_token_chain_survives_three_failures_of_each_call() -> None:
    target = a_peer()
    target.github.faults.add(Fault(kind="status", path="*/access_tokens", times=3))
    target.github.faults.add(Fault(kind="status", path="*/registration-token", times=3, status=503))

    token = await target.installation().registration_token(ACME)

    assert token.token


async def test_slow_answer_ends_at_the_deadline_and_a_later_call_works() -> None:
    target = a_peer()
    target.github.faults.add(Fault(kind="latency", seconds=3600, times=9, path="*/runners"))
    began = virtual_time.clock().monotonic()

    with pytest.raises(errors.TimedOut):
        await target.installation().runners(ACME)

    assert virtual_time.clock().monotonic() - began == pytest.approx(10)
    target.github.faults.clear()
    assert await target.installation().runners(ACME) == []


async def test_primary_limit_is_respected_until_its_reset() -> None:
    target = a_peer(Settings(requests_per_hour=3))
    installation = target.installation()
    for number in range(3):
        await installation.create_jit_runner(ACME, RunnerSpec(f"r-{number}", ["macos"]))

    with pytest.raises(errors.RateLimited) as raised:
        await installation.create_jit_runner(ACME, RunnerSpec("r-3", ["macos"]))

    assert timedelta(minutes=59) < raised.value.after <= timedelta(hours=1)
    assert len(target.github.actions.runners) == 3
    await asyncio.sleep(raised.value.after.total_seconds())
    await installation.create_jit_runner(ACME, RunnerSpec("r-3", ["macos"]))


@pytest.mark.parametrize(("seconds", "expected"), [(45, 45), (0, 60)])
async def test_secondary_limit_stops_requests_for_its_time(seconds: float, expected: int) -> None:
    target = a_peer()
    installation = target.installation()
    target.github.faults.add(
        Fault(kind="secondary_limit", seconds=seconds, path="*/generate-jitconfig")
    )

    with pytest.raises(errors.RateLimited) as raised:
        await installation.create_jit_runner(ACME, RunnerSpec("r-1", ["macos"]))

    assert raised.value.after == timedelta(seconds=expected)
    with pytest.raises(errors.RateLimited):
        await installation.runners(ACME)
    await asyncio.sleep(expected)
    assert await installation.runners(ACME) == []


async def test_tokens_are_renewed_for_a_day_without_a_refusal() -> None:
    target = a_peer()
    installation = target.installation()

    for _ in range(24 * 6):
        await installation.runner_groups(ACME)
        await asyncio.sleep(600)

    # An hour's token is used for 55 minutes, by six calls ten minutes apart.
    assert len(target.github.access.valid_tokens()) == 24


async def test_expired_token_of_a_wrong_clock_is_refused() -> None:
    target = a_peer()
    installation = target.installation()
    await installation.runner_groups(ACME)
    # The clock of the client stands still, so it does not renew the token by itself.
    target.clock.offset = -timedelta(hours=2)
    await asyncio.sleep(timedelta(hours=2).total_seconds())

    with pytest.raises(errors.Unauthorized, match="differs from GitHub's by -7200 s"):
        await installation.runner_groups(ACME)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    import logging

    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    log.configure(level="debug", form="json", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_no_credential_appears_in_errors_or_logs(logged: io.StringIO) -> None:
    receiver = HookReceiver(status=500)
    target = peer(simulated_github(virtual_time.clock(), hook=receiver.hook()))
    installation, access = target.installation(), target.github.access
    shown = []
    created = await installation.create_jit_runner(ACME, RunnerSpec("r-1", ["macos"]))
    registration = await installation.registration_token(ACME)
    async with target.github.running():
        repository = target.github.accounts[APP.owner].repositories[APP.name]
        target.github.actions.queue_job(repository, labels=["macos"])
        await receiver.wait_for(1)
    for status in (400, 401, 403, 404, 409, 418, 422, 500):
        target.github.faults.add(Fault(kind="status", status=status, path="*/runners", times=9))
        with pytest.raises(errors.BramleyError) as raised:
            await installation.runners(ACME)
        shown += traceback.format_exception(raised.value)
        target.github.faults.clear()
    access.keys.clear()
    with pytest.raises(errors.Unauthorized) as raised_unauthorized:
        await target.app().installation_of(ACME)
    shown += traceback.format_exception(raised_unauthorized.value)

    text = "".join(shown) + logged.getvalue() + repr([created, registration, target.app()])

    pem = github_keys.pem(github_keys.rsa_key()).decode().splitlines()[1:-1]
    secrets = [created.jit_config, registration.token, SECRET]
    canaries = [*access.valid_tokens(), *(each.reveal() for each in secrets), *pem, "eyJ"]
    assert len(canaries) > 20
    assert [each for each in canaries if each in text] == []
