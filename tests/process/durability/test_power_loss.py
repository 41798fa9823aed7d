"""Loss of power at any moment: what was promised is there, and the file is exactly what some moment of the run left.

A real program writes under strace. Its files are rebuilt as they would be after a loss of power at each step, with what was
not synced dropped or torn, and opened by the real code.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bramley.apiserver.store.errors import Compacted
from bramley.apiserver.store.data_folder import DATABASE
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.store import Store
from tests.process.durability.powerless import Disk, Image
from tests.process.durability.trace import Printed, Step, Synced, Written, record, steps
from tests.process.durability.writer import RESOURCES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")

WRITES = 400
# Of all writes to a file, after how many the power is also cut with what was not synced in pieces.
TORN_SHARE = 0.25
LOG = f"{DATABASE}-wal"

Objects = dict[tuple[str, str], str]


@dataclass
class Promises:
    """What the program said up to a moment."""

    submitted: list[tuple[str, str, str]] = field(default_factory=list)
    newest: int = 0

    def hear(self, line: str) -> None:
        kind, number, *rest = line.split(" ", 4)
        if kind == "S":
            assert int(number) == len(self.submitted) + 1
            self.submitted.append((rest[0], rest[1], rest[2]))
        else:
            self.newest = max(self.newest, int(number))

    def objects(self, revision: int) -> Objects:
        found: Objects = {}
        for resource, name, body in self.submitted[:revision]:
            if body == "-":
                found.pop((resource, name), None)
            else:
                found[resource, name] = body
        return found

    def last_revision(self, resource: str, revision: int) -> int:
        numbered = enumerate(self.submitted[:revision], 1)
        return max((rv for rv, write in numbered if write[0] == resource), default=0)


class Judge:
    """Opens images with the real code and compares them with what was promised."""

    def __init__(self, scratch: Path, promises: Promises) -> None:
        self._folder = scratch / "image"
        self._promises = promises

    def revision(self, image: Image) -> int:
        """Return the revision that an image stands at, after checking that it is whole."""
        self._folder.mkdir(mode=0o700)
        for name, content in image.items():
            (self._folder / name).write_bytes(content)
        try:
            return asyncio.run(self._open())
        finally:
            for path in self._folder.iterdir():
                path.unlink()
            self._folder.rmdir()

    async def _open(self) -> int:
        async with Store.open(self._folder, Settings(writer_thread=False)) as store:
            found = {
                (resource, record.key.name): record.body.decode()
                for resource in RESOURCES
                for record in store.list(resource)
            }
            assert found == self._promises.objects(store.revision)
            for resource in RESOURCES:
                self._check_floor(store, resource)
            return store.revision

    def _check_floor(self, store: Store, resource: str) -> None:
        last = self._promises.last_revision(resource, store.revision)
        store.watch(resource, since=last).close()
        if last:
            with pytest.raises(Compacted):
                store.watch(resource, since=last - 1)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
    """The steps of one run of the writer."""
    folder = tmp_path_factory.mktemp("power")
    argv = [sys.executable, "-m", "tests.process.durability.writer"]
    record([*argv, str(folder / "data"), "1", str(WRITES)], folder / "trace")
    return list(steps(folder / "trace", folder / "data"))


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory, since thousands of files are made in it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def broken_promise(story: list[Step], scratch: Path, chance: random.Random) -> str:
    """Cut the power after every step; return the first promise that was broken."""
    disk, promises = Disk(), Promises()
    judge = Judge(scratch, promises)
    safe = 0
    for number, step in enumerate(story):
        if isinstance(step, Printed):
            promises.hear(step.line)
        else:
            disk.do(step)
        if not isinstance(step, Printed | Written):
            safe = judge.revision(disk.image())
        if promises.newest > safe:
            return f"step {number}: {promises.newest} was promised, {safe} is on the disk"
        if isinstance(step, Written) and chance.random() < TORN_SHARE:
            torn = judge.revision(disk.torn_image(chance))
            if promises.newest > torn:
                return (
                    f"step {number}: {promises.newest} was promised, {torn} is left of torn writes"
                )
    return ""


def test_the_run_is_worth_looking_at(story: list[Step]) -> None:
    kinds = Counter(type(step) for step in story)
    syncs = Counter(step.name for step in story if isinstance(step, Synced))
    log_begins = [s for s in story if isinstance(s, Written) and (s.name, s.offset) == (LOG, 0)]

    assert kinds[Printed] >= 3 * WRITES
    assert syncs[LOG] >= WRITES / 8
    assert syncs[DATABASE] >= 5, "checkpoints"
    assert len(log_begins) >= 3, "the log was begun anew"


def test_no_promise_is_broken_by_a_loss_of_power(story: list[Step], scratch: Path) -> None:
    assert broken_promise(story, scratch, random.Random(1)) == ""


def test_a_disk_that_does_not_sync_the_log_is_found_out(story: list[Step], scratch: Path) -> None:
    """Shows that the test above can fail: this is the same run with the syncs at commits left out."""
    careless = [step for step in story if step != Synced(LOG)]

    assert "was promised" in broken_promise(careless, scratch, random.Random(1))
