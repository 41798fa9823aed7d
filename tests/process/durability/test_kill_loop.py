"""`kill -9` of the real server, again and again, under 64 writers and six watchers: nobody is ever told what does not last.

The writers are a ServiceAccount with a Role; the cluster's controllers collect garbage and roll out across all the deaths.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.history_checker.history import ABSENT, History
from tests.history_checker.verdict import Least, ProvesNothing, judge, require_traffic
from tests.process.durability.clients import END, Watcher, Writer, listed
from tests.process.durability.families import Parent, Roller, as_account, settle
from tests.process.durability.mortal import Mortal
from tests.process.durability.wire import Connection, Lost, Unsent
from tests.process.serving.processes import held_port

KILLS = 50
PARENTS = 3
WRITERS = 64
WATCHERS = 6
# Counted in writes and not in seconds, so that a slow machine sees the same deaths as a fast one.
WRITES_OF_A_LIFE = (1, 150)
LIVES_AT_MOST = 300.0
SETTLE_WITHIN = 300.0
LEAST_ROLLED = 10
LEAST_DELETED = 10
LEAST = Least(
    acknowledged=3_000,
    # How many there were says enough; how fast they came says how busy the machine was.
    per_second=0,
    refused=100,
    unknown=KILLS,
    events=6_000,
    resumed=KILLS,
    bookmarks=3,
)


def is_telling(history: History, least: Least) -> bool:
    try:
        require_traffic(history, least, seconds=1)
    except ProvesNothing:
        return False
    return True


async def live_until(holds: Callable[[], bool], *, pause: float) -> None:
    async with asyncio.timeout(LIVES_AT_MOST):
        while not holds():
            await asyncio.sleep(pause)


async def live_and_die(server: Mortal, history: History, *, is_enough: Callable[[], bool]) -> None:
    """Kill the server again and again in the middle of its work, at last when there was enough of it."""
    for _ in range(KILLS):
        enough = len(history.writes) + random.randint(*WRITES_OF_A_LIFE)
        await live_until(lambda: len(history.writes) >= enough, pause=0.001)  # noqa: B023
        await server.kill()
        await server.start()
    # On a busy machine controllers get less done in a life.
    await live_until(is_enough, pause=0.1)
    await server.kill()
    await server.start()


async def see_bookmarks(history: History) -> None:
    """Let the server live on until it is old enough for them."""
    only = Least(acknowledged=0, per_second=0, refused=0, events=0, bookmarks=LEAST.bookmarks)
    await live_until(lambda: is_telling(history, only), pause=0.1)


async def stop(tasks: list[asyncio.Task[None]], writers: Iterable[Writer]) -> None:
    """Let writers finish, as a late write of theirs must not come after what is meant to be the last; cut off the others."""
    for writer in writers:
        writer.is_over = True
    for task in tasks[WRITERS:]:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


async def write_the_end(server: Mortal, history: History) -> None:
    writer = Writer(END, server.access, history)
    while not writer.known.get(END):
        with suppress(Lost, Unsent), Connection(server.access) as connection:
            await writer.read(connection, END)
            if writer.known.get(END) == ABSENT:
                await writer.put(connection, END, ABSENT)


async def run(folder: Path, port: int) -> History:
    history = History()
    server = Mortal(folder, port)
    try:
        await server.start()
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
            is_done = roller.rolled >= LEAST_ROLLED and deleted >= LEAST_DELETED
            return is_done and is_telling(history, replace(LEAST, bookmarks=0))

        await live_and_die(server, history, is_enough=is_enough)
        await see_bookmarks(history)
        await stop(writing, writers)
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
    return history


def test_no_acknowledged_write_is_lost_by_killing_the_server(tmp_path: Path) -> None:
    with held_port() as port:
        history = asyncio.run(run(tmp_path, port))

    require_traffic(history, LEAST, seconds=1)
    assert judge(history) == {}
