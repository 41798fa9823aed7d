"""What the agent made on this host: one record per VM and one per image, on disk before the deed.

There is one writer per folder; the agent's lock sees to that. A VM's state never moves back, so a disk that may have run a job
stays known as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bramley.agent.ledger.records import ImageRecord, VmRecord, VmState
from bramley.agent.ledger.shelf import Shelf, Unreadable

_ORDER = {state: place for place, state in enumerate(VmState)}


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
