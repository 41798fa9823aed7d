from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.base.backoff import Backoff
from bramley.kube.api_calls import RetryPolicy
from bramley.kube.client import Client, Settings
from tests import virtual_time
from tests.unit.kube.fake_transport import (
    Answer,
    FakeTransport,
    Widget,
    answer,
    event,
    refusal,
    widget,
)

DEADLINE = timedelta(seconds=30)


def client(*answers: Answer) -> tuple[Client, FakeTransport]:
    transport = FakeTransport(*answers)
    retry_policy = RetryPolicy(deadline=DEADLINE, backoff=Backoff(jitter=0.0), rng=random.Random(1))
    made = Client(
        transport, clock=virtual_time.clock(), settings=Settings(retry_policy=retry_policy)
    )
    return made, transport


PASSING = [
    refusal(500, "InternalError"),
    refusal(503, "ServiceUnavailable"),
    refusal(504, "Timeout"),
    refusal(429, "TooManyRequests", retry_after="1"),
    errors.ApiUnavailable("connection refused"),
    errors.TimedOut("no answer"),
]


@pytest.mark.parametrize("passing", PASSING)
async def test_reads_are_retried_until_the_server_is_back(passing: Answer) -> None:
    kube, transport = client(passing, passing, answer(200, widget("a")))

    found = await kube.get(Widget, "a", namespace="ns")

    assert found.name == "a"
    assert len(transport.requests) == 3


@pytest.mark.parametrize("passing", PASSING)
async def test_watch_openings_are_repeated_and_the_failed_ones_closed(passing: Answer) -> None:
    kube, transport = client(passing, passing, [event("ADDED", widget("a"))])

    async with kube.watch(Widget, namespace="ns") as watch:
        assert transport.open == 1
        assert [found.object.name async for found in watch] == ["a"]

    assert transport.open == 0
    assert len(transport.requests) == 3


async def test_pages_are_repeated_one_by_one() -> None:
    first = answer(200, {"metadata": {"continue": "t"}, "items": [widget("a")]})
    second = answer(200, {"metadata": {}, "items": [widget("b")]})
    kube, transport = client(first, errors.ApiUnavailable("gone"), second)

    found = await kube.list(Widget)

    assert [item.name for item in found.items] == ["a", "b"]
    assert [request.query.get("continue") for request in transport.requests] == [None, "t", "t"]


async def test_pauses_grow_and_the_deadline_ends_them() -> None:
    kube, transport = client(errors.ApiUnavailable("down"))

    with pytest.raises(errors.ApiUnavailable, match="down"):
        await kube.get(Widget, "a", namespace="ns")

    pauses = [after - before for before, after in itertools.pairwise(transport.times)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 1 < pauses[-1]
    assert 20 < asyncio.get_running_loop().time() <= DEADLINE.total_seconds()


async def test_no_attempt_gets_more_time_than_is_left() -> None:
    async def slow(time: timedelta) -> None:
        given.append(time)
        await asyncio.sleep(time.total_seconds())
        raise errors.TimedOut("slow")

    given: list[timedelta] = []
    retry_policy = RetryPolicy(deadline=timedelta(seconds=25), attempt=timedelta(seconds=10))

    with pytest.raises(errors.TimedOut):
        await retry_policy.read(slow)

    assert given[0] == timedelta(seconds=10)
    assert sum(given, timedelta()) < timedelta(seconds=25.01)
    assert asyncio.get_running_loop().time() < 25.01


@pytest.mark.parametrize(
    "final",
    [
        refusal(400, "BadRequest"),
        refusal(401, "Unauthorized"),
        refusal(403, "Forbidden"),
        refusal(404, "NotFound"),
        refusal(409, "Conflict"),
        refusal(410, "Expired"),
        refusal(422, "Invalid"),
    ],
)
async def test_permanent_refusals_are_not_retried(final: Answer) -> None:
    kube, transport = client(final)

    with pytest.raises(errors.BramleyError):
        await kube.get(Widget, "a", namespace="ns")

    assert len(transport.requests) == 1


async def test_requested_wait_is_respected() -> None:
    slow_down = refusal(429, "TooManyRequests", retry_after="7")
    kube, transport = client(slow_down, answer(200, widget("a")))

    await kube.get(Widget, "a", namespace="ns")

    assert transport.times[1] - transport.times[0] >= 7


async def test_a_wait_beyond_the_deadline_is_raised_at_once() -> None:
    kube, _ = client(refusal(429, "TooManyRequests", retry_after="600"))

    with pytest.raises(errors.RateLimited) as caught:
        await kube.get(Widget, "a", namespace="ns")

    assert caught.value.after == timedelta(seconds=600)
    assert asyncio.get_running_loop().time() == 0


UNKNOWN = [
    errors.TimedOut("no answer"),
    errors.ApiUnavailable("connection reset"),
    refusal(500, "InternalError"),
    refusal(503, "ServiceUnavailable", retry_after="1"),
    refusal(504, "Timeout"),
    refusal(429, "TooManyRequests"),
]


@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize("verb", ["create", "merge", "json", "apply", "delete", "scale", "all"])
async def test_write_with_an_unknown_result_is_sent_once(unknown: Answer, verb: str) -> None:
    kube, transport = client(unknown)

    with pytest.raises((errors.Unavailable, errors.RateLimited)):
        await write(kube, verb)

    assert len(transport.requests) == 1


@pytest.mark.parametrize("verb", ["create", "merge", "json", "apply", "delete", "scale", "all"])
async def test_rate_limited_write_is_sent_again_after_the_wait(verb: str) -> None:
    turned_away = refusal(429, "TooManyRequests", retry_after="2")
    kube, transport = client(turned_away, turned_away, answer(200, widget("a")))

    await write(kube, verb)

    assert transport.times == [0, 2, 4]


async def test_refused_eviction_is_not_retried() -> None:
    kube, transport = client(refusal(429, "TooManyRequests", retry_after="1"))

    with pytest.raises(errors.RateLimited):
        await kube.evict("pod", "ns")

    assert len(transport.requests) == 1


async def test_shorter_deadline_can_be_set() -> None:
    kube, _ = client(errors.ApiUnavailable("down"))

    with pytest.raises(errors.ApiUnavailable):
        await kube.within(timedelta(seconds=3)).get(Widget, "a", namespace="ns")

    assert asyncio.get_running_loop().time() <= 3


async def write(kube: Client, verb: str) -> None:
    patch = {"spec": {"size": 2}}
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "create": lambda: kube.create_wire(Widget.resource, widget("a"), namespace="ns"),
        "merge": lambda: kube.merge_patch(Widget, "a", patch, namespace="ns"),
        "json": lambda: kube.json_patch(Widget, "a", [], namespace="ns"),
        "apply": lambda: kube.apply(Widget, "a", patch, manager="me", namespace="ns"),
        "delete": lambda: kube.delete(Widget, "a", namespace="ns"),
        "scale": lambda: kube.scale(Widget, "a", namespace="ns", replicas=2),
        "all": lambda: kube.delete_collection(Widget, namespace="ns"),
    }
    await writes[verb]()
