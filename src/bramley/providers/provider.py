"""The provider of rented Macs, as a Protocol; `scaleway.py` implements it for Scaleway.

A host belongs to the pool, to a claim in progress or to a machine, which its name shows. docs/explanation/providers.md explains
what a second provider has to implement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bramley.base import errors
from bramley.base.secret import Secret

_PATH_SEGMENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,126}[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")


class HostState(StrEnum):
    """What a host can do now; the provider's own word is `Host.status`."""

    READY = "Ready"
    REINSTALLING = "Reinstalling"
    # Starts, reboots, or does something else that ends by itself.
    BUSY = "Busy"
    # Does not become ready by itself.
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, order=True)
class HostRef:
    """The zone and the id of a host, which are safe in the path of a request."""

    zone: str
    id: str

    def __post_init__(self) -> None:
        checked_zone(self.zone)
        checked_id(self.id)

    def __str__(self) -> str:
        return f"{self.zone}/{self.id}"


@dataclass(frozen=True, slots=True)
class Host:
    """A rented Mac, as the provider describes it."""

    ref: HostRef
    name: str
    type: str
    # Any of them may be the operating system of a spec: its family, its name.
    os_names: tuple[str, ...]
    state: HostState
    status: str
    is_delivered: bool = True
    is_deletion_scheduled: bool = False

    @property
    def can_be_claimed(self) -> bool:
        """Return whether it is delivered, ready, and stays rented."""
        is_ready = self.state is HostState.READY
        return self.is_delivered and is_ready and not self.is_deletion_scheduled


@dataclass(frozen=True, slots=True)
class HostCredentials:
    """The login of a host; without a password the provider does not disclose it."""

    address: str
    ssh_user: str
    sudo_password: Secret | None


class HostProvider(Protocol):
    """Lists, claims, releases and repairs rented Macs.

    Errors of all calls: Unavailable; its subclass HostBusy while a transition of the host refuses the request; RateLimited with
    its wait; NotFound; Conflict if another write was faster; or Refused, such as Forbidden. After Unavailable it is unknown
    whether a write took effect, except for HostBusy: nothing was changed. Every call ends within its deadline. Calls about one
    zone do not wait for calls about another. No error contains a credential.

    Names are not exclusive: of two callers that claim one host, each may read its own name back at some moment, because a rename
    has no condition. The caller holds a Lease for the host from before `claim` until after `release`; then a host has one owner.
    """

    def provider_id(self, ref: HostRef) -> str:
        """Return the provider id that the Node of this host and its machine have in common."""
        ...

    async def hosts(self, zone: str) -> Sequence[Host]:
        """Return all hosts of a zone, from all pages; a list that is incomplete is an error."""
        ...

    async def host(self, ref: HostRef) -> Host:
        """Return one host; NotFound if it is not rented any more."""
        ...

    async def claim(self, host: Host, name: str) -> Host | None:
        """Rename a listed host to `name` and return it as read back, or None if it is lost: try the next one.

        Lost means that it is gone, cannot be claimed any more, or has another name than when it was listed, or than the one given
        to it here. Repeating is safe: a host that has the name already is returned unchanged. After Unavailable the host may
        have its old name, a name of a claim in progress, or `name`: list again, and claim the same host before another one.
        """
        ...

    async def release(self, ref: HostRef, name: str, *, pool_prefix: str, os: str) -> bool:
        """Rename the host of `name` into the pool and reinstall it; False if it does not exist any more.

        The image is resolved first: InvalidSpec if the family of `os` has none for this type, and the host is untouched; an
        empty `os` means the provider's default. True means that the reinstallation runs. Repeating is safe and required after
        every error, before the Lease is freed: until then a host of the pool may have the data of `name`. Refused if the host
        has a foreign name.
        """
        ...

    async def reboot(self, ref: HostRef) -> None:
        """Reboot a host; one that is gone or in a transition is left alone. Not repeated after Unavailable."""
        ...

    async def reinstall(self, ref: HostRef, *, os: str) -> None:
        """Wipe a host and install the newest image of the family of `os`; a reinstallation that runs already is enough."""
        ...

    async def credentials(self, ref: HostRef) -> HostCredentials:
        """Return the login of a host."""
        ...

    async def ensure_ssh_key(self, name: str, public_key: str) -> str:
        """Register a key that is installed on hosts at their next boot or reinstallation, and return its id.

        Keys are compared without their comment. Others with this name are removed. Concurrent calls of one provider are
        processed one by one; callers in several processes need a Lease.
        """
        ...


def checked_zone(zone: str) -> str:
    """Return a zone that is safe in the path of a request; InvalidSpec otherwise."""
    if _PATH_SEGMENT.fullmatch(zone) is None:
        raise errors.InvalidSpec(f"{zone[:100]!r} is not a valid name of a zone")
    return zone


def checked_id(id: str) -> str:
    """Return an id that is safe in the path of a request; InvalidSpec otherwise."""
    if _PATH_SEGMENT.fullmatch(id) is None:
        raise errors.InvalidSpec(f"{id[:100]!r} is not a valid id")
    return id


def checked_name(name: str) -> str:
    """Return a name that a host may have; InvalidSpec otherwise."""
    if _NAME.fullmatch(name) is None:
        raise errors.InvalidSpec(f"{name[:100]!r} is not a valid name of a host")
    return name


def pool_name(prefix: str, ref: HostRef) -> str:
    """Return the name of a host in the pool; InvalidSpec if the prefix is empty or invalid."""
    if not prefix:
        raise errors.InvalidSpec("the prefix of the names of free hosts is empty")
    return checked_name(f"{prefix}{ref.id}")
