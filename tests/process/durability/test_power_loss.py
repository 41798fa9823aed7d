"""Power loss at any moment: every acknowledged write is kept, and the data equals the state at some revision of the run.

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

from bramley.apiserver.store.data_folder import DATABASE
from bramley.apiserver.store.errors import Compacted
from bramley.apiserver.store.settings import Settings
from bramley.apiserver.store.store import Store
from tests.process.durability.disk_model import Disk, Image
from tests.process.durability.trace import Printed, Step, Synced, Written, record, steps
from tests.process.durability.writer import RESOURCES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")

WRITES = 400
# The share of file writes after which a power loss with partial unsynced writes is tested, too.
TORN_SHARE = 0.25
LOG = f"{DATABASE}-wal"

Objects = dict[tuple[str, str], str]


@dataclass
class Acknowledged:
    """What the program has printed so far: submitted writes, and the newest acknowledged revision."""

    submitted: list[tuple[str, str, str]] = field(default_factory=list)
    newest: int = 0

    def read_line(self, line: str) -> None:
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


class ImageChecker:
    """Opens disk images with the real code and compares them with what was acknowledged."""

    def __init__(self, scratch: Path, acknowledged: Acknowledged) -> None:
        self._folder = scratch / "image"
        self._acknowledged = acknowledged

    def revision(self, image: Image) -> int:
        """Return the revision of an image, after checking its content."""
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
            assert found == self._acknowledged.objects(store.revision)
            for resource in RESOURCES:
                self._check_floor(store, resource)
            return store.revision

    def _check_floor(self, store: Store, resource: str) -> None:
        last = self._acknowledged.last_revision(resource, store.revision)
        store.watch(resource, since=last).close()
        if last:
            with pytest.raises(Compacted):
                store.watch(resource, since=last - 1)


@pytest.fixture(scope="module")
def run_steps(tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
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


def lost_write(run_steps: list[Step], scratch: Path, rng: random.Random) -> str:
    """Simulate a power loss after every step; return the first acknowledged write that was lost."""
    disk, acknowledged = Disk(), Acknowledged()
    checker = ImageChecker(scratch, acknowledged)
    safe = 0
    for number, step in enumerate(run_steps):
        if isinstance(step, Printed):
            acknowledged.read_line(step.line)
        else:
            disk.apply(step)
        if not isinstance(step, Printed | Written):
            safe = checker.revision(disk.image())
        if acknowledged.newest > safe:
            return f"step {number}: {acknowledged.newest} was acknowledged, {safe} is on the disk"
        if isinstance(step, Written) and rng.random() < TORN_SHARE:
            torn = checker.revision(disk.torn_image(rng))
            if acknowledged.newest > torn:
                return f"step {number}: {acknowledged.newest} was acknowledged, {torn} is left of torn writes"
    return ""


def test_the_run_contains_syncs_checkpoints_and_log_restarts(run_steps: list[Step]) -> None:
    kinds = Counter(type(step) for step in run_steps)
    syncs = Counter(step.name for step in run_steps if isinstance(step, Synced))
    log_begins = [s for s in run_steps if isinstance(s, Written) and (s.name, s.offset) == (LOG, 0)]

    assert kinds[Printed] >= 3 * WRITES
    assert syncs[LOG] >= WRITES / 8
    assert syncs[DATABASE] >= 5, "checkpoints"
    assert len(log_begins) >= 3, "restarts of the log"


def test_no_acknowledged_write_is_lost_by_a_power_loss(
    run_steps: list[Step], scratch: Path
) -> None:
    assert lost_write(run_steps, scratch, random.Random(1)) == ""


def test_a_disk_that_does_not_sync_the_log_is_detected(
    run_steps: list[Step], scratch: Path
) -> None:
    """Shows that the test above can fail: this is the same run with the syncs at commits left out."""
    careless = [step for step in run_steps if step != Synced(LOG)]

    assert "was acknowledged" in lost_write(careless, scratch, random.Random(1))
