"""Who has a rented host, by its name, its Lease and the records of machines; and what it counts as. Pure.

A host that belongs to a machine in any of these ways has an owner. Any other name than that of the pool or of a claim in progress is
one that no machine has: the machine is gone, or the host belongs to others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, StrEnum

from bramley.api.names import machines
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.providers.provider import Host, HostState


class Ownership(Enum):
    """To whom a host belongs."""

    MACHINE = "machine"
    POOL = "pool"
    # The name of a claim in progress, without a Lease: one that was abandoned, or of a manager without Leases.
    CLAIM = "claim"
    STRAY = "stray"

    @property
    def is_orphan(self) -> bool:
        """Return whether no machine will use or release the host."""
        return self in {Ownership.CLAIM, Ownership.STRAY}


@dataclass(frozen=True, slots=True)
class Owners:
    """What shows that hosts have an owner: names of machines, ids that they have recorded, ids with a Lease, and prefixes."""

    names: AbstractSet[str]
    recorded: AbstractSet[str]
    leased: AbstractSet[str]
    pool_prefixes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        machines: Iterable[ScalewayAppleSiliconMachine],
        *,
        leased: Iterable[str],
        default_pool_prefix: str,
    ) -> Owners:
        """Return the owners; each machine may have its own prefix of the pool."""
        found = list(machines)
        prefixes = {default_pool_prefix, *(each.spec.adopt_pool_prefix for each in found)} - {""}
        return cls(
            names=frozenset(each.name for each in found),
            recorded=frozenset(id for each in found for id in recorded_ids(each)),
            leased=frozenset(leased),
            pool_prefixes=tuple(sorted(prefixes)),
        )

    def find(self, host: Host) -> Ownership:
        """Return to whom a host belongs."""
        if host.name in self.names or host.ref.id in self.recorded | self.leased:
            return Ownership.MACHINE
        if host.name.startswith(self.pool_prefixes):
            return Ownership.POOL
        if host.name.startswith(machines.CLAIM_PREFIX):
            return Ownership.CLAIM
        return Ownership.STRAY


def recorded_ids(machine: ScalewayAppleSiliconMachine) -> frozenset[str]:
    """Return the ids of hosts in the status and in the provider id of a machine, which may differ."""
    bound = (machine.spec.provider_id or "").rpartition("/")[2]
    return frozenset({machine.status.server_id, bound} - {""})


def may_reclaim(host: Host, ownership: Ownership, claim_name_prefix: str) -> bool:
    """Return whether a host without an owner is ours to change; without a prefix none is."""
    if not claim_name_prefix:
        return False
    is_ours = ownership is Ownership.STRAY and host.name.startswith(claim_name_prefix)
    return is_ours or ownership is Ownership.CLAIM


class HostUse(StrEnum):
    """What a host counts as, exactly one for each host."""

    AVAILABLE = "available"
    CLAIMED = "claimed"
    REINSTALLING = "reinstalling"
    BUSY = "busy"
    FAILED = "failed"
    QUARANTINED = "quarantined"


_BY_STATE = {
    HostState.REINSTALLING: HostUse.REINSTALLING,
    HostState.BUSY: HostUse.BUSY,
    HostState.FAILED: HostUse.FAILED,
}


def use_of(host: Host, ownership: Ownership, quarantined: AbstractSet[str]) -> HostUse:
    """Return what a host counts as: first by what it can do, then by who has it."""
    if host.state in _BY_STATE:
        return _BY_STATE[host.state]
    if ownership is not Ownership.POOL:
        return HostUse.CLAIMED
    if host.ref.id in quarantined:
        return HostUse.QUARANTINED
    if host.can_be_claimed:
        return HostUse.AVAILABLE
    # One that is going to be returned does not become available by itself.
    return HostUse.FAILED if host.is_deletion_scheduled else HostUse.BUSY


def count_uses(
    hosts: Iterable[Host], owners: Owners, quarantined: AbstractSet[str]
) -> Counter[tuple[str, HostUse]]:
    """Return the number of hosts by type and use."""
    return Counter((host.type, use_of(host, owners.find(host), quarantined)) for host in hosts)
