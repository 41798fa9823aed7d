"""The ledger of what the agent created on this host: one record per VM and per image, written before the action it stands for.

There is one writer per folder, ensured by the agent's lock. A VM's state never moves back, so a disk that may have run a job
is never taken for an unused one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

from bramley.agent import atomic_file
from bramley.base import errors, log

logger = log.get(__name__)

_RECORD = ".json"
_UNREADABLE = ".unreadable"


R = TypeVar("R")


class LedgerUnavailable(errors.Unavailable):
    """The record cannot be written, so the action that it stands for must not happen."""


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record that cannot be decoded; the name of its file is the name of the VM or image."""

    kind: str
    name: str
    path: Path


class _Header(msgspec.Struct, frozen=True):
    version: int


class RecordStore(Generic[R]):
    """The records of one kind, as files in one folder."""

    def __init__(self, folder: Path, kind: type[R], *, durable: bool) -> None:
        self._folder = folder
        self._decoder = msgspec.json.Decoder(kind)
        self._durable = durable
        self.records: dict[str, R] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._load()

    def put(self, name: str, record: R) -> None:
        """Write a record; it is visible only once it is on disk."""
        try:
            atomic_file.replace(
                self._path(name), msgspec.json.encode(record), durable=self._durable
            )
        except OSError as error:
            raise LedgerUnavailable(f"the record of {name} was not written: {error}") from error
        # Only after the write: what is not on disk must not be acted on.
        self.records[name] = record

    def drop(self, name: str) -> None:
        """Remove a record, also an unreadable one of this name; succeeds if there is none."""
        try:
            atomic_file.remove(self._path(name), durable=self._durable)
            atomic_file.remove(self._path(name).with_suffix(_UNREADABLE), durable=False)
        except OSError as error:
            raise LedgerUnavailable(f"the record of {name} was not removed: {error}") from error
        # Only after the removal: a record that is still on disk would be back after a restart.
        self.records.pop(name, None)

    def unreadable(self) -> Iterator[UnreadableRecord]:
        """Yield unreadable records, also those that an earlier agent found, that have not been replaced by a new record."""
        for path in sorted(self._folder.glob(f"*{_UNREADABLE}")):
            name = path.name.removesuffix(_UNREADABLE)
            if name not in self.records:
                yield UnreadableRecord(self._folder.name, name, path)

    def _path(self, name: str) -> Path:
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"{name!r} is not a valid record name")
        return self._folder / f"{name}{_RECORD}"

    def _load(self) -> None:
        # Drafts are writes that a crash has interrupted; their actions have not happened.
        for draft in self._folder.glob(f"*{atomic_file.SUFFIX}"):
            draft.unlink(missing_ok=True)
        for path in sorted(self._folder.glob(f"*{_RECORD}")):
            record = self._read(path)
            if record is not None:
                self.records[path.name.removesuffix(_RECORD)] = record

    def _read(self, path: Path) -> R | None:
        content = path.read_bytes()
        try:
            version = msgspec.json.decode(content, type=_Header).version
            if version <= VERSION:
                return self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._quarantine(path, error)
            return None
        raise errors.BadConfiguration(
            f"{path} has version {version}, and this agent supports {VERSION}: run the newer agent"
        )

    def _quarantine(self, path: Path, error: Exception) -> None:
        # Renamed and not deleted: the name alone shows that the VM is ours.
        renamed = path.rename(path.with_suffix(_UNREADABLE))
        logger.error("Ledger record is unreadable", path=str(renamed), error=str(error))


VERSION = 1


class VmState(StrEnum):
    """The state of a VM; the order of the members is the order of its life."""

    CLAIMED = "claimed"  # the name is reserved; a clone may exist and has never run
    CLONED = "cloned"  # the clone is complete, has its identity and size, and has never run
    STARTED = "started"  # `tart run` was or will be executed: this disk never boots again
    ENDED = "ended"  # the run has ended and its exit is in the record
    REPORTED = "reported"  # the API server has acknowledged the terminal status


class VmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One VM that the agent created or adopted."""

    vm: str
    namespace: str
    pod: str
    uid: str
    image: str
    digest: str = ""
    golden: str = ""
    pool: str = ""
    boot_id: str = ""
    state: VmState = VmState.CLAIMED
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    exit_reason: str = ""
    exit_message: str = ""
    # Adopted from an agent without a ledger.
    is_adopted: bool = False
    # Its guest has run a command for the agent, so from then on no response means that it hangs.
    has_answered: bool = False
    # Its guest has had an address, so it is never abandoned for the lack of one.
    had_address: bool = False
    # Its guest had no address in time: the VM is discarded, and the Pod gets a new one. It is no exit of the Pod.
    is_abandoned: bool = False
    # What the agent did to end the VM, written before it did it.
    was_shut_down: bool = False
    was_powered_off: bool = False
    version: int = VERSION


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One image that the agent pulled, and the golden base made of it, if there is one.

    `references` are all names by which it was requested; `last_used` is renewed while a Pod or a VM needs it.
    """

    digest: str
    references: tuple[str, ...] = ()
    golden: str = ""
    is_pulled: bool = False
    is_staged: bool = False
    size_bytes: int = 0
    pulled_at: datetime | None = None
    last_used: datetime | None = None
    version: int = VERSION


_ORDER = {state: position for position, state in enumerate(VmState)}


class Ledger:
    """The records of VMs and images; every write is durable when it returns.

    Errors: LedgerUnavailable if the disk cannot be written, BadConfiguration for records of a newer release.
    """

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self._vms = RecordStore(folder / "vms", VmRecord, durable=durable)
        self._images = RecordStore(folder / "images", ImageRecord, durable=durable)

    def vms(self) -> Mapping[str, VmRecord]:
        """Return a live view of all records of VMs by name."""
        return MappingProxyType(self._vms.records)

    def vm(self, name: str) -> VmRecord | None:
        """Return the record of one VM, if it has one."""
        return self._vms.records.get(name)

    def find_by_uid(self, uid: str) -> VmRecord | None:
        """Return the record of the VM of a Pod, if it has one."""
        return next((each for each in self._vms.records.values() if each.uid == uid), None)

    def put(self, record: VmRecord) -> None:
        """Write the record of a VM; ValueError if its state would move back."""
        old = self.vm(record.vm)
        if old is not None and _ORDER[record.state] < _ORDER[old.state]:
            raise ValueError(f"VM {record.vm} is {old.state} and cannot be {record.state} again")
        self._vms.put(record.vm, record)

    def drop(self, vm: str) -> None:
        """Remove the record of a VM; succeeds if it has none."""
        self._vms.drop(vm)

    def images(self) -> Mapping[str, ImageRecord]:
        """Return all records of images by digest."""
        return {record.digest: record for record in self._images.records.values()}

    def image(self, digest: str) -> ImageRecord | None:
        """Return the record of one image, if it has one."""
        return self._images.records.get(_hex(digest))

    def put_image(self, record: ImageRecord) -> None:
        """Write the record of an image."""
        self._images.put(_hex(record.digest), record)

    def drop_image(self, digest: str) -> None:
        """Remove the record of an image; succeeds if it has none."""
        self._images.drop(_hex(digest))

    def unreadable(self) -> list[UnreadableRecord]:
        """Return the unreadable records: VMs and images of the agent in an unknown state."""
        return [*self._vms.unreadable(), *self._images.unreadable()]


def _hex(digest: str) -> str:
    return digest.partition(":")[2] or digest
