"""Which hosts of a zone a machine may claim, and in which order. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from bramley.api.names import machines
from bramley.base import errors
from bramley.providers.os_families import is_of_family
from bramley.providers.provider import Host


@dataclass(frozen=True, slots=True)
class HostRequirements:
    """The host that a machine needs: its name after the claim, type, family of macOS, and the names of free hosts."""

    name: str
    type: str
    os: str
    pool_prefix: str

    def __post_init__(self) -> None:
        # Every host would match an empty prefix, also those of others.
        if not self.pool_prefix:
            raise errors.InvalidSpec("the prefix of the names of free hosts is empty")


def claimable(
    hosts: Iterable[Host], required: HostRequirements, *, excluded: AbstractSet[str] = frozenset()
) -> list[Host]:
    """Return the hosts to try, in this order; those with an excluded id, such as quarantined ones, are left out.

    A host that has the machine's name was claimed before, and its claim was not recorded: it is the only candidate, also while it
    is busy, because any other would become a second one. Then follow hosts of the pool, and those whose claim was abandoned.
    Each machine has another order, so that machines that are created together do not all try the same host first.
    """
    fitting = [
        host
        for host in hosts
        if host.ref.id not in excluded
        and host.type == required.type
        and is_of_family(host.os_names, required.os)
    ]
    own = [host for host in fitting if host.name == required.name]
    if own:
        return sorted((host for host in own if host.can_be_claimed), key=lambda host: host.ref)
    prefixes = (required.pool_prefix, machines.CLAIM_PREFIX)
    free = [host for host in fitting if host.can_be_claimed and host.name.startswith(prefixes)]
    return sorted(free, key=lambda host: _rank(host, required))


def _rank(host: Host, required: HostRequirements) -> tuple[bool, bytes]:
    is_abandoned = not host.name.startswith(required.pool_prefix)
    return is_abandoned, hashlib.sha256(f"{required.name} {host.ref}".encode()).digest()
