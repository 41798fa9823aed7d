"""`kill -9` of the real server, again and again, under 64 writers and six watchers: no client observes a write that is lost later.

The writers are a ServiceAccount with a Role; the cluster's controllers collect garbage and roll out across all kills.
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
from tests.process.durability.killable_server import KillableServer
from tests.process.durability.owners_and_rollouts import Parent, Rollout, as_account, settle
from tests.process.durability.raw_http import Connection, Lost, Unsent
from tests.process.serving.processes import held_port

KILLS = 50
PARENTS = 3
WRITERS = 64
WATCHERS = 6
# Counted in writes and not in seconds, so that a slow machine is killed at the same points as a fast one.
WRITES_BEFORE_KILL = (1, 150)
RUN_TIMEOUT_SECONDS = 300.0
SETTLE_WITHIN = 300.0
LEAST_ROLLED = 10
LEAST_DELETED = 10
LEAST = Least(
    acknowledged=3_000,
    # The number matters; the rate only shows how busy the machine was.
    per_second=0,
    refused=100,
    unknown=KILLS,
    events=6_000,
    resumed=KILLS,
    bookmarks=3,
)


def has_traffic(history: History, least: Least) -> bool:
    try:
        require_traffic(history, least, seconds=1)
    except ProvesNothing:
        return False
    return True


async def wait_until(condition: Callable[[], bool], *, pause: float) -> None:
    async with asyncio.timeout(RUN_TIMEOUT_SECONDS):
        while not condition():
            await asyncio.sleep(pause)


async def kill_repeatedly(
    server: KillableServer, history: History, *, is_enough: Callable[[], bool]
) -> None:
    """Kill and restart the server repeatedly under load, the last time when there was enough traffic."""
    for _ in range(KILLS):
        enough = len(history.writes) + random.randint(*WRITES_BEFORE_KILL)
        await wait_until(lambda: len(history.writes) >= enough, pause=0.001)  # noqa: B023
        await server.kill()
        await server.start()
    # On a busy machine controllers do less between two kills.
    await wait_until(is_enough, pause=0.1)
    await server.kill()
    await server.start()


async def wait_for_bookmarks(history: History) -> None:
    """Wait until the watchers have received enough bookmarks."""
    only = Least(acknowledged=0, per_second=0, refused=0, events=0, bookmarks=LEAST.bookmarks)
    await wait_until(lambda: has_traffic(history, only), pause=0.1)


async def stop(tasks: list[asyncio.Task[None]], writers: Iterable[Writer]) -> None:
    """Wait for the writers, so that none of their writes comes after the final object; cancel the other clients."""
    for writer in writers:
        writer.is_over = True
    for task in tasks[WRITERS:]:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


async def write_final_object(server: KillableServer, history: History) -> None:
    writer = Writer(END, server.access, history)
    while not writer.known.get(END):
        with suppress(Lost, Unsent), Connection(server.access) as connection:
            await writer.read(connection, END)
            if writer.known.get(END) == ABSENT:
                await writer.put(connection, END, ABSENT)


async def run(folder: Path, port: int) -> History:
    history = History()
    server = KillableServer(folder, port)
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
        rollout = Rollout(account)
        actors: tuple[Writer | Parent | Rollout, ...] = (*writers, *parents, rollout)
        writing = [asyncio.ensure_future(actor.run()) for actor in actors]

        def is_enough() -> bool:
            deleted = sum(parent.deleted for parent in parents)
            is_done = rollout.rolled >= LEAST_ROLLED and deleted >= LEAST_DELETED
            return is_done and has_traffic(history, replace(LEAST, bookmarks=0))

        await kill_repeatedly(server, history, is_enough=is_enough)
        await wait_for_bookmarks(history)
        await stop(writing, writers)
        await write_final_object(server, history)
        async with asyncio.timeout(SETTLE_WITHIN):
            await asyncio.gather(*watching)
        last = await listed(server.access)
        # Controllers continue to write other kinds; no ConfigMap changed after the final object.
        end_rv, _ = last.states[END]
        history.listings.append(replace(last, rv=end_rv))
        await settle(server.access, parents, seconds=SETTLE_WITHIN)
        # Otherwise it settled only because there was nothing to do.
        assert is_enough(), (rollout.rolled, [parent.deleted for parent in parents])
    finally:
        await server.kill()
    return history


def test_no_acknowledged_write_is_lost_by_killing_the_server(tmp_path: Path) -> None:
    with held_port() as port:
        history = asyncio.run(run(tmp_path, port))

    require_traffic(history, LEAST, seconds=1)
    assert judge(history) == {}
