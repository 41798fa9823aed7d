"""`kill -9` of the real server, again and again, under 64 writers and six watchers: nobody is ever told what does not last.

The writers are a ServiceAccount with a Role; the cluster's controllers collect garbage and roll out across all the deaths.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.history_checker.history import History
from tests.history_checker.verdict import Least, judge, require_traffic
from tests.process.durability.clients import END, Watcher, Writer, listed
from tests.process.durability.families import Parent, Roller, as_account, settle
from tests.process.durability.mortal import Mortal
from tests.process.durability.wire import Connection, Lost, Unsent

KILLS = 50
# On a busy machine controllers get less done in a life.
KILLS_AT_MOST = 150
PARENTS = 3
WRITERS = 64
WATCHERS = 6
# Counted in writes and not in seconds, so that a slow machine sees the same deaths as a fast one.
WRITES_OF_A_LIFE = (1, 150)
LIVES_AT_MOST = 120.0
# At the end the server lives long enough for bookmarks.
CALM = 3.0
SETTLE_WITHIN = 120.0
LEAST_ROLLED = 10
LEAST_DELETED = 10


async def live_and_die(server: Mortal, history: History, *, is_enough: Callable[[], bool]) -> float:
    """Kill the server again and again in the middle of its work, until there was enough of it; return how long it served."""
    served = 0.0
    for number in range(KILLS_AT_MOST):
        if number >= KILLS and is_enough():
            break
        began, enough = time.monotonic(), len(history.writes) + random.randint(*WRITES_OF_A_LIFE)
        async with asyncio.timeout(LIVES_AT_MOST):
            while len(history.writes) < enough:
                await asyncio.sleep(0.001)
        await server.kill()
        served += time.monotonic() - began
        await server.start()
    return served


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


async def write_the_end(server: Mortal, history: History) -> None:
    writer = Writer(END, server.access, history)
    while not writer.known.get(END):
        with suppress(Lost, Unsent), Connection(server.access) as connection:
            await writer.read(connection, END)
            if not writer.known[END]:
                await writer.put(connection, END, 0)


async def run(folder: Path) -> tuple[History, float]:
    history = History()
    server = Mortal(folder)
    await server.start()
    try:
        watchers = [
            Watcher(f"watcher-{number}", server.access, history, hangs_up=number % 2 == 1)
            for number in range(WATCHERS)
        ]
        watching = [asyncio.ensure_future(watcher.run()) for watcher in watchers]
        account = await as_account(server.access)
        writers = [Writer(f"writer-{n}", account, history) for n in range(WRITERS)]
        parents = [Parent(f"parent-{n}", account) for n in range(PARENTS)]
        roller = Roller(account)
        actors: tuple[Writer | Parent | Roller, ...] = (*writers, *parents, roller)
        writing = [asyncio.ensure_future(actor.run()) for actor in actors]

        def is_enough() -> bool:
            deleted = sum(parent.deleted for parent in parents)
            return roller.rolled >= LEAST_ROLLED and deleted >= LEAST_DELETED

        served = await live_and_die(server, history, is_enough=is_enough)
        await asyncio.sleep(CALM)
        await stop(writing)
        await write_the_end(server, history)
        async with asyncio.timeout(SETTLE_WITHIN):
            await asyncio.gather(*watching)
        last = await listed(server.access)
        # Controllers went on writing other kinds; of this one nothing changed since the end was written.
        end_rv, _ = last.states[END]
        history.listings.append(replace(last, rv=end_rv))
        await settle(server.access, parents, seconds=SETTLE_WITHIN)
        # Else it settled only because there was nothing to do.
        assert is_enough(), (roller.rolled, [parent.deleted for parent in parents])
    finally:
        await server.kill()
    return history, served + CALM


def test_nothing_that_a_client_was_told_is_lost_by_killing_the_server(tmp_path: Path) -> None:
    history, served = asyncio.run(run(tmp_path))

    require_traffic(
        history,
        Least(
            acknowledged=3_000,
            # How many there were says enough; how fast they came says how busy the machine was.
            per_second=1,
            refused=100,
            unknown=KILLS,
            events=6_000,
            resumed=KILLS,
            bookmarks=3,
        ),
        seconds=served,
    )
    assert judge(history) == {}
