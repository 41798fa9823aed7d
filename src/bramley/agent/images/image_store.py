"""The images of this host: their records in the ledger, and whether their golden bases are complete on disk.

Golden bases are identified by digest; a tag is one of the references of a record and moves to another record when the registry
moves it. Each base has a lock, which clones share and which is held alone to make or to delete the base. Reads files and starts no process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from bramley.agent.ledger import ImageRecord, Ledger, LedgerUnavailable
from bramley.agent.shared_lock import SharedLock
from bramley.agent.tart import references
from bramley.agent.tart.references import Reference
from bramley.api.names import agent, labels
from bramley.base import log
from bramley.base.clock import Clock

logger = log.get(__name__)

# `last_used` is written at most this often: it only has to distinguish days.
_USE_RESOLUTION = timedelta(minutes=10)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
# The prefix of the digest of a record for a pull by tag, whose digest is unknown until the pull ends.
_PENDING = "pending:"
# The prefix of the digest of a record for an adopted base that no VM is cloned from.
_BASE = "base:"


@dataclass(frozen=True, slots=True)
class ImageStore:
    """Finds the images of this host by every name they were requested under."""

    ledger: Ledger
    home: Path
    clock: Clock
    # Names of images that are being pulled.
    pulling: set[str] = field(default_factory=set)
    _locks: dict[str, SharedLock] = field(default_factory=dict)

    def records(self) -> list[ImageRecord]:
        """Return the records of all images, whether they are on disk or not."""
        images = self.ledger.images().values()
        return [record for record in images if not record.digest.startswith(_PENDING)]

    def present(self) -> Sequence[ImageRecord]:
        """Return the images whose golden base is complete on disk."""
        return [record for record in self.records() if self.is_complete(record.golden)]

    def find(self, reference: Reference, image: str) -> ImageRecord | None:
        """Return the record of a reference."""
        if reference.digest:
            return self.ledger.image(reference.digest)
        return next((each for each in self.records() if image in each.references), None)

    def is_complete(self, vm: str) -> bool:
        """Return whether a local VM has all its files."""
        return bool(vm) and references.is_bundle(self.home / "vms" / vm)

    def last_size(self, reference: Reference) -> int:
        """Return the size of the last image of the same repository, as an estimate for the next; 0 if there is none."""
        records = (each for each in self.records() if _is_of(each, reference.repository))
        newest = max(records, key=lambda each: each.pulled_at or _LONG_AGO, default=None)
        return newest.size_bytes if newest is not None else 0

    def has_folder(self, vm: str) -> bool:
        """Return whether a local VM of this name exists, complete or not."""
        return (self.home / "vms" / vm).exists()

    def has_golden(self, reference: Reference) -> bool:
        """Return whether the golden base of an image by digest is complete, with a record or without."""
        return self.is_complete(agent.golden_vm(reference.with_digest(reference.digest)))

    def is_cached(self, reference: Reference, digest: str) -> bool:
        """Return whether an image is complete in tart's cache."""
        return references.is_bundle(references.folder(self.home, reference, digest))

    def cached(self, reference: Reference) -> frozenset[str]:
        """Return the digests of this repository that are in tart's cache."""
        folder = references.folder(self.home, reference, "")
        if not folder.is_dir():
            return frozenset()
        return frozenset(path.name for path in folder.iterdir() if not path.is_symlink())

    def cached_images(self) -> frozenset[str]:
        """Return the recorded images in tart's cache by digest; also what an interrupted deletion has left, which tart does not list."""
        return frozenset(
            reference.with_digest(record.digest)
            for record in self.records()
            for reference in map(references.parse, record.references)
            if reference and references.folder(self.home, reference, record.digest).exists()
        )

    def lock(self, golden: str) -> SharedLock:
        """Return the lock of one golden base."""
        return self._locks.setdefault(golden, SharedLock())

    def is_in_use(self, record: ImageRecord) -> bool:
        """Return whether an operation with this image, or a pull of it, is in progress."""
        lock = self._locks.get(record.golden)
        is_locked = lock is not None and lock.is_held
        return is_locked or not self.pulling.isdisjoint(record.references)

    def record_use(self, record: ImageRecord) -> None:
        """Renew `last_used`, at a bounded rate."""
        now = self.clock.now()
        # abs(): after the clock was set back, a date in the future must be replaced too.
        if record.last_used is None or abs(now - record.last_used) >= _USE_RESOLUTION:
            with _ignoring_full_disk():
                self.ledger.put_image(msgspec.structs.replace(record, last_used=now))

    def record_pull_start(self, reference: Reference, image: str) -> None:
        """Record a pull before it starts, together with the digests that were cached before: those are not ours."""
        if reference.digest:
            if not self.is_cached(reference, reference.digest):
                self._put_references(image, reference, reference.digest, is_pulled=True)
        elif self.ledger.image(_pending(image)) is None:
            before = (reference.with_digest(digest) for digest in sorted(self.cached(reference)))
            self.ledger.put_image(ImageRecord(digest=_pending(image), references=(image, *before)))

    def record_pulled(self, reference: Reference, image: str, digest: str) -> ImageRecord:
        """Record the digest that a name has now; the name is removed from every other record."""
        pending = self.ledger.image(_pending(image))
        is_ours = pending is not None and reference.with_digest(digest) not in pending.references
        record = self._put_references(image, reference, digest, is_pulled=is_ours)
        # After the new record: an interruption leaves the tag on two records, never on none.
        self._move_tag(image, owner=digest)
        # Last: until the digest is recorded, the pending record is the only trace of the pull.
        self.ledger.drop_image(_pending(image))
        return record

    def interrupted_pulls(self) -> list[str]:
        """Return the names whose pull an earlier agent started and did not finish."""
        images = self.ledger.images().values()
        return [each.references[0] for each in images if each.digest.startswith(_PENDING)]

    def finish_interrupted(self, reference: Reference, image: str, digest: str) -> None:
        """Record the result of an interrupted pull, if its digest was not cached before."""
        pending = self.ledger.image(_pending(image))
        with _ignoring_full_disk():
            if pending is not None and reference.with_digest(digest) not in pending.references:
                self.record_pulled(reference, image, digest)

    def drop_pending(self, image: str) -> None:
        """Drop the record of a pull by tag that failed."""
        with _ignoring_full_disk():
            self.ledger.drop_image(_pending(image))

    def record_golden(self, record: ImageRecord, reference: Reference) -> ImageRecord:
        """Record the name of an image's golden base before it is made, and return the record."""
        golden = record.golden or agent.golden_vm(reference.with_digest(record.digest))
        return self._put(record, golden=golden)

    def record_golden_complete(self, record: ImageRecord, *, size: int) -> ImageRecord:
        """Record that the golden base is complete, and its allocated size."""
        now = self.clock.now()
        return self._put(record, size_bytes=size, pulled_at=record.pulled_at or now, last_used=now)

    def unrecorded_bases(self) -> dict[str, Reference]:
        """Return the golden bases that an agent without a ledger made, with the cached image that each was made from.

        A base is recognized by its name: it contains the hash of the image's reference. One without a cached image of that reference
        is not returned, because its digest is unknown.
        """
        recorded = {record.golden for record in self.records()}
        found = {name for name in self._base_names() if self.is_complete(name)} - recorded
        if not found:
            return {}
        cached = references.cached(self.home)
        made = {
            agent.golden_vm(each): reference
            for name, reference in cached.items()
            # A Pod may leave the default tag out.
            for each in (name, name.removesuffix(f":{references.DEFAULT_TAG}"))
        }
        lost = {each.name for each in self.ledger.unreadable()}
        return {
            name: made[name]
            for name in sorted(found & made.keys())
            # A record that cannot be read may have been that of an image which another program pulled.
            if made[name].digest.partition(":")[2] not in lost
        }

    def adopt_base(self, golden: str, reference: Reference, *, size: int) -> None:
        """Record a base and its cached image, as if they were used now.

        Only a base that is named by the digest is used for VMs: a tag may have moved since its base was made. Any other base gets a
        record without references, by which it is only deleted.
        """
        record = self.ledger.image(reference.digest) or ImageRecord(digest=reference.digest)
        is_usable = not record.golden and golden == agent.golden_vm(reference.normalized)
        names = [
            name
            for name, each in references.cached(self.home).items()
            if each.digest == record.digest and each.repository == reference.repository
        ]
        logger.info("Adopting golden base", golden=golden, image=reference.normalized)
        now = self.clock.now()
        base = ImageRecord(digest=f"{_BASE}{golden}", golden=golden, size_bytes=size, last_used=now)
        with _ignoring_full_disk():
            self._put(
                record,
                references=tuple(dict.fromkeys((*record.references, *names))),
                # An agent without a ledger pulled every image before it made the base.
                is_pulled=True,
                last_used=now,
                **({"golden": golden, "size_bytes": size} if is_usable else {}),
            )
            if not is_usable:
                self.ledger.put_image(base)

    def _base_names(self) -> list[str]:
        try:
            entries = [each.name for each in (self.home / "vms").iterdir()]
        except OSError:
            return []
        return [name for name in entries if agent.is_golden_vm(name)]

    def set_staged(self, record: ImageRecord, *, is_staged: bool) -> None:
        """Record whether this image is staged."""
        if record.is_staged != is_staged:
            self._put(record, is_staged=is_staged)

    def forget(self, digest: str) -> None:
        """Drop the record of an image that is no longer on disk."""
        self.ledger.drop_image(digest)

    def _put_references(
        self, image: str, reference: Reference, digest: str, *, is_pulled: bool
    ) -> ImageRecord:
        record = self.ledger.image(digest) or ImageRecord(digest=digest)
        names = (*record.references, image, reference.with_digest(digest))
        return self._put(
            record,
            references=tuple(dict.fromkeys(names)),
            is_pulled=record.is_pulled or is_pulled,
            last_used=self.clock.now(),
        )

    def _move_tag(self, image: str, *, owner: str) -> None:
        for record in self.records():
            if image in record.references and record.digest != owner:
                others = tuple(name for name in record.references if name != image)
                self._put(record, references=others)

    def _put(self, record: ImageRecord, **changes: object) -> ImageRecord:
        changed = msgspec.structs.replace(record, **changes)
        if changed != record or self.ledger.image(record.digest) is None:
            self.ledger.put_image(changed)
        return changed


@contextlib.contextmanager
def _ignoring_full_disk() -> Iterator[None]:
    """Ignore a record that cannot be written and is not essential: on a full disk the caller may be what frees space."""
    try:
        yield
    except LedgerUnavailable as error:
        logger.warning("Image record not written", error=str(error))


def _is_of(record: ImageRecord, repository: str) -> bool:
    parsed = (references.parse(name) for name in record.references)
    return any(each is not None and each.repository == repository for each in parsed)


def _pending(image: str) -> str:
    return f"{_PENDING}{labels.golden_hash(image)}"
