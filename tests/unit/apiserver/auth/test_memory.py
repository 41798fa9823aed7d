"""What callers send does not stay in the memory: addresses and tokens are remembered only while they are short."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from bramley.apiserver.auth.service_account_tokens import ISSUER
from tests.unit.apiserver.auth.test_service_account_tokens import minted, owner
from tests.unit.apiserver.world import PODS, World

LONG = 30_000
TIMES = 40


@contextmanager
def keeping_at_most(limit_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        yield
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < limit_bytes


async def test_long_paths_are_not_cached(world: World) -> None:
    with keeping_at_most(TIMES * LONG // 4):
        for number in range(TIMES):
            assert (await world.get(f"{PODS}/{number}{'x' * LONG}")).code == 404


async def test_long_tokens_are_valid_and_not_cached(world: World) -> None:
    tokens = [
        await minted(world, audiences=[ISSUER, f"{number}{'x' * LONG}"]) for number in range(TIMES)
    ]
    # The first one loads what verifies tokens.
    await owner(world, tokens.pop())
    with keeping_at_most(TIMES * LONG // 4):
        for token in tokens:
            assert await owner(world, token) == "system:serviceaccount:t:robot"
