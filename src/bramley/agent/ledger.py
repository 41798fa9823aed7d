"""What the agent made on this host: one record per VM and one per image, on disk before the deed.

There is one writer per folder; the agent's lock sees to that. A VM's state never moves back, so a disk that may have run a job
stays known as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import msgspec

from bramley.agent import atomic_file
from bramley.base import errors, log

logger = log.get(__name__)

_RECORD = ".json"
_ASIDE = ".unreadable"


class Versioned(Protocol):
    """What every record has."""

    @property
    def version(self) -> int:
        """Return the version of the format it is written in."""
        ...


R = TypeVar("R", bound=Versioned)


class LedgerUnavailable(errors.Unavailable):
    """The disk does not take the record; what it would say has not happened yet."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that was set aside: the file's name tells what it stood for."""

    kind: str
    name: str
    path: Path


class _Header(msgspec.Struct, frozen=True):
    version: int


class Shelf(Generic[R]):
    """Keeps the records of one kind."""

    def __init__(self, folder: Path, kind: type[R], *, durable: bool) -> None:
        self._folder = folder
        self._decoder = msgspec.json.Decoder(kind)
        self._durable = durable
        self.records: dict[str, R] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._load()

    def put(self, name: str, record: R) -> None:
        """Write a record; it counts only once it is on disk."""
        try:
            atomic_file.replace(
                self._path(name), msgspec.json.encode(record), durable=self._durable
            )
        except OSError as error:
            raise LedgerUnavailable(f"the record of {name} was not written: {error}") from error
        self.records[name] = record

    def drop(self, name: str) -> None:
        """Forget a record, and one of this name that was set aside; done if there is none."""
        try:
            atomic_file.remove(self._path(name), durable=self._durable)
            atomic_file.remove(self._path(name).with_suffix(_ASIDE), durable=False)
        except OSError as error:
            raise LedgerUnavailable(f"the record of {name} was not removed: {error}") from error
        self.records.pop(name, None)

    def unreadable(self) -> Iterator[Unreadable]:
        """Yield what was set aside, also by an earlier agent, and has no new record since."""
        for path in sorted(self._folder.glob(f"*{_ASIDE}")):
            name = path.name.removesuffix(_ASIDE)
            if name not in self.records:
                yield Unreadable(self._folder.name, name, path)

    def _path(self, name: str) -> Path:
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"no record can be called {name!r}")
        return self._folder / f"{name}{_RECORD}"

    def _load(self) -> None:
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
            self._set_aside(path, error)
            return None
        raise errors.BadConfiguration(
            f"{path} is of version {version}, and this agent knows {VERSION}: run the newer agent"
        )

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = path.rename(path.with_suffix(_ASIDE))
        logger.error("Set aside a record that cannot be read", path=str(aside), error=str(error))


VERSION = 1


class VmState(StrEnum):
    """How far a VM has come."""

    CLAIMED = "claimed"  # the name is ours; a clone may exist and has never run
    CLONED = "cloned"  # the clone is whole, has its identity and its size, and has never run
    STARTED = "started"  # tart run was or will be issued: this disk never boots again
    ENDED = "ended"  # the run is over and how is written down here
    REPORTED = "reported"  # the API server has acknowledged the terminal status


class VmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One VM of ours."""

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
    # Taken over from an agent that kept no ledger.
    is_adopted: bool = False
    # Its guest has run a command for us, so from then on its silence means something.
    has_answered: bool = False
    version: int = VERSION


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One image that we pulled, and the golden base made of it, if it came to that.

    `references` are all names it was asked for by; `last_used` is renewed while a Pod or a VM needs it.
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
    """Keeps the records of VMs and images; every write is durable when it returns.

    Errors: LedgerUnavailable where the disk refuses, BadConfiguration for records of a newer release.
    """

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self._vms = Shelf(folder / "vms", VmRecord, durable=durable)
        self._images = Shelf(folder / "images", ImageRecord, durable=durable)

    def vms(self) -> Mapping[str, VmRecord]:
        """Return all records of VMs by name; a view that follows changes."""
        return MappingProxyType(self._vms.records)

    def vm(self, name: str) -> VmRecord | None:
        """Return the record of one VM, if it is ours."""
        return self._vms.records.get(name)

    def find_by_uid(self, uid: str) -> VmRecord | None:
        """Return the record of the VM of a Pod, if it has one."""
        return next((each for each in self._vms.records.values() if each.uid == uid), None)

    def put(self, record: VmRecord) -> None:
        """Write the record of a VM; ValueError if its state would move back."""
        known = self.vm(record.vm)
        if known is not None and _ORDER[record.state] < _ORDER[known.state]:
            raise ValueError(f"VM {record.vm} is {known.state} and cannot be {record.state} again")
        self._vms.put(record.vm, record)

    def drop(self, vm: str) -> None:
        """Forget a VM; done if it is unknown."""
        self._vms.drop(vm)

    def images(self) -> Mapping[str, ImageRecord]:
        """Return all records of images by digest."""
        return {record.digest: record for record in self._images.records.values()}

    def image(self, digest: str) -> ImageRecord | None:
        """Return the record of one image, if it is ours."""
        return self._images.records.get(_hex(digest))

    def put_image(self, record: ImageRecord) -> None:
        """Write the record of an image."""
        self._images.put(_hex(record.digest), record)

    def drop_image(self, digest: str) -> None:
        """Forget an image; done if it is unknown."""
        self._images.drop(_hex(digest))

    def unreadable(self) -> list[Unreadable]:
        """Return records that were set aside: things of ours in a state that nobody knows."""
        return [*self._vms.unreadable(), *self._images.unreadable()]


def _hex(digest: str) -> str:
    return digest.partition(":")[2] or digest
