"""A program that writes to a store as fast as it can and prints what was acknowledged.

Each line is one system call, so that a trace shows it in its place among the writes and syncs of the files:
`S rv resource name body` before a write is submitted (a body of - removes), `A rv` when it was acknowledged, `E rv` when
a watcher saw it. Run it as `python -m tests.process.durability.writer FOLDER SEED WRITES`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from bramley.apiserver.store.errors import Closed
from bramley.apiserver.store.records import Draft, Key, Record, Removal
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.store import Store

WRITERS = 8
RESOURCES = ("pods", "nodes")
# Frequent checkpoints, and a log that is truncated and restarted: the risky operations.
SETTINGS = Settings(checkpoint_pages=24, wal_limit_bytes=64 * 1024)


def report(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def write(store: Store, rng: random.Random) -> None:
    key = Key(rng.choice(RESOURCES), "default", f"{rng.randrange(12)}")
    removes = rng.random() < 0.2
    filler = "x" * rng.choice((10, 700, 6000))

    def build(head: Record | None, rv: int) -> Draft | Removal:
        if removes and head:
            report(f"S {rv} {key.resource} {key.name} -")
            return Removal(b"{}")
        body = f"{rv}:{filler}"
        report(f"S {rv} {key.resource} {key.name} {body}")
        return Draft(body.encode(), {"size": str(len(filler))})

    record = await store.write(key, build)
    report(f"A {record.rv}")


async def watch(store: Store, resource: str) -> None:
    with store.watch(resource, since=store.revision) as subscription:
        while True:
            try:
                changes = await subscription.next(None)
            except Closed:
                return
            for change in changes:
                report(f"E {change.rv}")


async def main(folder: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    numbers = iter(range(count))

    async def writer() -> None:
        for _ in numbers:
            await write(store, rng)

    async with Store.open(folder, SETTINGS) as store, asyncio.TaskGroup() as group:
        watchers = [group.create_task(watch(store, resource)) for resource in RESOURCES]
        async with asyncio.TaskGroup() as writers:
            for _ in range(WRITERS):
                writers.create_task(writer())
        await asyncio.sleep(0)
        for watcher in watchers:
            watcher.cancel()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
