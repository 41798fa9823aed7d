from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import pytest

from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import DrainTicket
from bramley.base import errors
from bramley.runners import judgement
from bramley.runners.dispatch_client import PodSignals, RollSignals, ScalingSignals
from bramley.runners.roll_signals import RollSignalsPoller
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key
from tests import virtual_time
from tests.unit.runners.builders import NAMESPACE, NOW, POOL
from tests.unit.runners.rollout_states import rolling

AWAITED = judgement.RollSignals(is_awaited=True)
ANSWER = RollSignals(pool=POOL, pods={"a": PodSignals(first_poll_at=NOW)})
POLLED = judgement.RollSignals(first_polls={"a": NOW})


@dataclass(slots=True)
class FakeSignals:
    """Gives an answer, or fails, three seconds after it was asked."""

    answer: RollSignals | errors.BramleyError | None = None

    async def desired_replicas(self, pool: str) -> ScalingSignals:
        raise NotImplementedError

    async def roll_signals(self, pool: str, since: datetime) -> RollSignals | None:
        del pool, since
        await asyncio.sleep(3)
        if isinstance(self.answer, errors.BramleyError):
            raise self.answer
        return self.answer


@dataclass(slots=True)
class Polled:
    """A poller, the dispatch server that it asks, and the keys that it has enqueued."""

    signals: FakeSignals
    pools: Cache[RunnerPool]
    poller: RollSignalsPoller
    enqueued: list[str] = field(default_factory=list)

    def put(self, phase: str, *draining: DrainTicket) -> None:
        pool = rolling()
        status = msgspec.structs.replace(pool.status, roll_phase=phase, draining=list(draining))
        self.pools.put(Key(NAMESPACE, POOL), msgspec.structs.replace(pool, status=status))


@asynccontextmanager
async def polling(answer: RollSignals | errors.BramleyError | None) -> AsyncIterator[Polled]:
    signals, pools = FakeSignals(answer), Cache(RunnerPool)
    polled = Polled(signals, pools, RollSignalsPoller(signals, pools, virtual_time.clock()))
    polled.poller.trigger.connect(lambda key, _: polled.enqueued.append(key.name))
    polled.put("Canary")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(polled.poller.run())
        yield polled
        task.cancel()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(ANSWER, POLLED), (None, None), (errors.Unavailable("status 503"), None)],
)
async def test_signals_are_awaited_until_the_first_request_has_ended(
    answer: RollSignals | errors.BramleyError | None, expected: judgement.RollSignals | None
) -> None:
    async with polling(answer) as polled:
        await asyncio.sleep(2)
        before = (polled.poller.find(POOL), list(polled.enqueued))
        await asyncio.sleep(2)

        assert before == (AWAITED, [])
        assert (polled.poller.find(POOL), polled.enqueued) == (expected, [POOL])


async def test_pool_is_enqueued_only_when_the_answer_has_changed() -> None:
    async with polling(ANSWER) as polled:
        await asyncio.sleep(60)
        assert polled.enqueued == [POOL]

        polled.signals.answer = RollSignals(pool=POOL)
        await asyncio.sleep(60)

        assert polled.enqueued == [POOL, POOL]
        assert polled.poller.find(POOL) == judgement.RollSignals()


async def test_answer_is_kept_through_a_short_outage_and_missing_after_a_long_one() -> None:
    async with polling(ANSWER) as polled:
        await asyncio.sleep(5)
        polled.signals.answer = errors.Unavailable("status 503")

        await asyncio.sleep(90)
        assert polled.poller.find(POOL) == POLLED
        await asyncio.sleep(60)
        assert polled.poller.find(POOL) is None


async def test_signals_are_awaited_again_in_the_next_roll() -> None:
    async with polling(ANSWER) as polled:
        await asyncio.sleep(5)
        polled.put("Idle")
        await asyncio.sleep(10)
        polled.put("Canary")

        assert polled.poller.find(POOL) == AWAITED
        await asyncio.sleep(10)
        assert polled.poller.find(POOL) == POLLED


async def test_signals_are_fetched_until_the_canaries_of_a_rejected_image_are_gone() -> None:
    async with polling(ANSWER) as polled:
        polled.put("Rejected", DrainTicket(pod="canary", since=NOW))
        await asyncio.sleep(300)
        assert polled.poller.find(POOL) == POLLED

        polled.put("Rejected")
        await asyncio.sleep(10)
        assert polled.poller.find(POOL) == AWAITED
