"""The images of this host: what the ledger says of them, and whether their golden bases are whole on disk.

Golden bases go by digest: a tag is one of the names of a record and moves to another when the registry says so. Both sides of
every quarrel over a base meet at its lock: who makes it, who clones from it, and the collector. Reads files, spawns nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from bramley.agent.ledger import ImageRecord, Ledger, LedgerUnavailable
from bramley.agent.tart import references
from bramley.agent.tart.references import Reference
from bramley.api.names import agent, labels
from bramley.base import log
from bramley.base.clock import Clock

logger = log.get(__name__)

# What makes a folder a VM to tart.
_PARTS = ("config.json", "disk.img", "nvram.bin")
# Use is written down this often at most: it only has to tell days apart.
_TOUCH = timedelta(minutes=10)
# Begins the digest of a record that stands for a pull by tag, whose digest nobody knows before its end.
_PENDING = "pending:"


class Stock:
    """Knows the images of this host by every name they were asked for."""

    def __init__(self, ledger: Ledger, home: Path, clock: Clock) -> None:
        self._ledger = ledger
        self._home = home
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}
        # Names of images that are on their way.
        self.coming: set[str] = set()

    @property
    def home(self) -> Path:
        """Return tart's folder."""
        return self._home

    def records(self) -> list[ImageRecord]:
        """Return all images of ours, whether they are on disk or not."""
        images = self._ledger.images().values()
        return [record for record in images if not record.digest.startswith(_PENDING)]

    def present(self) -> Sequence[ImageRecord]:
        """Return the images whose golden base is whole on disk."""
        return [record for record in self.records() if self.is_whole(record.golden)]

    def find(self, reference: Reference, image: str) -> ImageRecord | None:
        """Return the record that a name stands for."""
        if reference.digest:
            return self._ledger.image(reference.digest)
        return next((each for each in self.records() if image in each.references), None)

    def is_whole(self, vm: str) -> bool:
        """Tell whether a local VM has all its files."""
        return bool(vm) and _is_bundle(self._home / "vms" / vm)

    def has_folder(self, vm: str) -> bool:
        """Tell whether there is anything of this name among the local VMs, whole or not."""
        return (self._home / "vms" / vm).exists()

    def has_golden(self, reference: Reference) -> bool:
        """Tell whether the golden base of a pinned image is whole, whoever made it."""
        return self.is_whole(agent.golden_vm(reference.at(reference.digest)))

    def is_cached(self, reference: Reference, digest: str) -> bool:
        """Tell whether an image is whole in tart's cache."""
        return _is_bundle(references.folder(self._home, reference, digest))

    def cached(self, reference: Reference) -> frozenset[str]:
        """Return the digests of this repository that are in tart's cache."""
        folder = references.folder(self._home, reference, "")
        if not folder.is_dir():
            return frozenset()
        return frozenset(each.name for each in folder.iterdir() if not each.is_symlink())

    def lock(self, golden: str) -> asyncio.Lock:
        """Return the lock of one golden base."""
        return self._locks.setdefault(golden, asyncio.Lock())

    def is_locked(self, golden: str) -> bool:
        """Tell whether somebody makes this base, clones from it or deletes it."""
        lock = self._locks.get(golden)
        return lock is not None and lock.locked()

    def is_in_hand(self, record: ImageRecord) -> bool:
        """Tell whether somebody works with this image right now, or waits for it."""
        return self.is_locked(record.golden) or not self.coming.isdisjoint(record.references)

    def used(self, record: ImageRecord) -> None:
        """Write down that an image is in use, but not more often than it matters."""
        now = self._clock.now()
        # In both directions: a clock that was set back must not leave an old date for as long as it was set back.
        if record.last_used is None or abs(now - record.last_used) >= _TOUCH:
            with _tolerated():
                self._ledger.put_image(msgspec.structs.replace(record, last_used=now))

    def began(self, reference: Reference, image: str) -> None:
        """Write down a pull before it is issued, and what was there before: that was not fetched by us."""
        if reference.digest:
            if not self.is_cached(reference, reference.digest):
                self._note(image, reference, reference.digest, is_pulled=True)
        elif self._ledger.image(_pending(image)) is None:
            before = (reference.at(digest) for digest in sorted(self.cached(reference)))
            self._ledger.put_image(ImageRecord(digest=_pending(image), references=(image, *before)))

    def fetched(self, reference: Reference, image: str, digest: str) -> ImageRecord:
        """Write down which digest a name has now; every other record loses the name."""
        pending = self._ledger.image(_pending(image))
        is_ours = pending is not None and reference.at(digest) not in pending.references
        record = self._note(image, reference, digest, is_pulled=is_ours)
        self._take_name(image, but=digest)
        self._ledger.drop_image(_pending(image))
        return record

    def unfinished(self) -> list[str]:
        """Return the names whose pull an earlier agent began and never saw the end of."""
        images = self._ledger.images().values()
        return [each.references[0] for each in images if each.digest.startswith(_PENDING)]

    def settle(self, reference: Reference, image: str, digest: str) -> None:
        """Write down what an unfinished pull has brought after all, if this digest is news."""
        pending = self._ledger.image(_pending(image))
        with _tolerated():
            if pending is not None and reference.at(digest) not in pending.references:
                self.fetched(reference, image, digest)

    def gave_up(self, image: str) -> None:
        """Forget a pull by tag that brought nothing."""
        with _tolerated():
            self._ledger.drop_image(_pending(image))

    def promise(self, record: ImageRecord, reference: Reference) -> ImageRecord:
        """Write down the golden base of an image before it is made, and return the record with its name."""
        golden = record.golden or agent.golden_vm(reference.at(record.digest))
        return self._put(record, golden=golden)

    def made(self, record: ImageRecord) -> ImageRecord:
        """Write down that the golden base is whole, and how large it is."""
        now = self._clock.now()
        size = _allocated(self._home / "vms" / record.golden)
        return self._put(record, size_bytes=size, pulled_at=record.pulled_at or now, last_used=now)

    def stage(self, record: ImageRecord, *, is_staged: bool) -> None:
        """Write down whether somebody asked to keep this image ready."""
        if record.is_staged != is_staged:
            self._put(record, is_staged=is_staged)

    def forget(self, digest: str) -> None:
        """Drop the record of an image of which nothing is left on disk."""
        self._ledger.drop_image(digest)

    def _note(
        self, image: str, reference: Reference, digest: str, *, is_pulled: bool
    ) -> ImageRecord:
        known = self._ledger.image(digest) or ImageRecord(digest=digest)
        names = (*known.references, image, reference.at(digest))
        return self._put(
            known,
            references=tuple(dict.fromkeys(names)),
            is_pulled=known.is_pulled or is_pulled,
            last_used=self._clock.now(),
        )

    def _take_name(self, image: str, *, but: str) -> None:
        for record in self.records():
            if image in record.references and record.digest != but:
                rest = tuple(name for name in record.references if name != image)
                self._put(record, references=rest)

    def _put(self, record: ImageRecord, **changes: object) -> ImageRecord:
        changed = msgspec.structs.replace(record, **changes)
        if changed != record or self._ledger.image(record.digest) is None:
            self._ledger.put_image(changed)
        return changed


@contextlib.contextmanager
def _tolerated() -> Iterator[None]:
    """Go on where a disk takes no record of what is only good to know: a full one is in need of whoever writes it."""
    try:
        yield
    except LedgerUnavailable as error:
        logger.warning("Not written down", error=str(error))


def _is_bundle(folder: Path) -> bool:
    return all((folder / part).is_file() for part in _PARTS)


def _allocated(folder: Path) -> int:
    """Return the bytes that the files of a VM take on disk; 0 if they cannot be read."""
    try:
        return sum(each.stat().st_blocks * 512 for each in folder.iterdir())
    except OSError:
        return 0


def _pending(image: str) -> str:
    return f"{_PENDING}{labels.golden_hash(image)}"
