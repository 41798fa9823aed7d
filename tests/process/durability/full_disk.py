"""A program that fills its disk, frees it again, and prints a JSON report about its store.

Run it as `python -m tests.process.durability.full_disk tmpfs|limit FOLDER`. For `tmpfs` it must be alone in a mount namespace:
it mounts a small file system on the folder. For `limit` it sets a limit to the size of its files.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bramley.apiserver.store.data_folder import DATABASE
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.records import Draft, Key
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.store import Store
from bramley.base.errors import BadConfiguration

SIZE = "4m"
OBJECTS = 40
# Large enough to need separate pages, and small enough to be changed in place.
LARGE, SMALL = 9000, 12
SETTINGS = Settings(checkpoint_pages=100)


@dataclass
class Report:
    """What happened."""

    acknowledged: list[int] = field(default_factory=list)
    failed: int = 0
    failed_after_space_was_back: int = 0
    reads_while_full: bool = False
    seen_by_watcher: list[int] = field(default_factory=list)
    kept: bool = False
    refusals: list[str] = field(default_factory=list)
    kept_after_start_on_full_disk: bool = False


@dataclass
class Space:
    """How the disk is filled and freed."""

    fill: Callable[[], None]
    fill_wholly: Callable[[], None]
    free: Callable[[], None]


def small_file_system(folder: Path) -> Space:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], check=True)
    ballast = folder / "ballast"

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                return

    return Space(fill, fill, lambda: ballast.unlink(missing_ok=True))


def limited_file_size(folder: Path) -> Space:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def allow(size_bytes: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, most))

    def fill() -> None:
        allow(max(path.stat().st_size for path in folder.iterdir()))

    return Space(fill, lambda: allow(0), lambda: allow(most))


async def write(store: Store, report: Report, name: str, size_bytes: int = LARGE) -> bool:
    key = Key("pods", "default", name)
    try:
        record = await store.write(key, lambda _, rv: Draft((b"%d" % rv).rjust(size_bytes)))
    except StorageUnavailable:
        report.failed += 1
        return False
    report.acknowledged.append(record.rv)
    return True


async def write_some(store: Store, report: Report, count: int) -> int:
    """Write at once from many tasks; return how many succeeded."""
    names = (str(number % OBJECTS) for number in range(count))
    return sum(await asyncio.gather(*(write(store, report, name) for name in names)))


async def fill_up(store: Store, report: Report) -> None:
    """Write until not even the smallest change fits.

    The log may be written from its beginning again as long as the database can take the new pages. So objects are added until
    neither one more nor a change of the smallest one fits; then nothing does, in whatever groups the writes are committed.
    """
    for number in itertools.count():
        is_large = await write(store, report, f"new-{number}")
        if not (await write(store, report, "small", SMALL) or is_large):
            return


async def run_scenario(folder: Path, space: Space) -> Report:
    report = Report()
    async with Store.open(folder, SETTINGS) as store:
        subscription = store.watch("pods", since=0)
        # From 128 on revisions take as many bytes as later ones.
        await write_some(store, report, 4 * OBJECTS)
        await write(store, report, "small", SMALL)
        space.fill()
        await fill_up(store, report)
        before = store.list("pods")
        report.reads_while_full = not await write_some(store, report, OBJECTS)
        report.reads_while_full &= store.list("pods") == before and len(before) > OBJECTS
        space.free()
        report.failed_after_space_was_back = 2 * OBJECTS - await write_some(
            store, report, 2 * OBJECTS
        )
        report.seen_by_watcher = [change.rv for change in await subscription.next(1)]
        objects = store.list("pods")
    async with Store.open(folder, SETTINGS) as store:
        report.kept = store.list("pods") == objects
    space.fill_wholly()
    await start_on_full_disk(folder, report)
    space.free()
    async with Store.open(folder, SETTINGS) as store:
        report.kept_after_start_on_full_disk = store.list("pods") == objects
    return report


async def start_on_full_disk(folder: Path, report: Report) -> None:
    new = folder / "new"
    for place in (folder, new):
        try:
            async with Store.open(place, SETTINGS):
                pass
        except BadConfiguration as refusal:
            report.refusals.append(str(refusal).replace(str(folder), "FOLDER"))
    assert not (new / DATABASE).exists()


if __name__ == "__main__":
    place = Path(sys.argv[2])
    os.umask(0o077)
    space = small_file_system(place) if sys.argv[1] == "tmpfs" else limited_file_size(place)
    sys.stdout.write(json.dumps(asdict(asyncio.run(run_scenario(place, space)))))
