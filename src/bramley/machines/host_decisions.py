"""What to do with the host of a machine, by its name and state at the provider. Pure.

The name shows who has a host: the pool, a claim in progress or a machine. A name that was read may be older than the last rename, so
nothing is given up before all earlier claims have settled.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from bramley.api.names import machines
from bramley.providers.os_families import is_of_family
from bramley.providers.provider import Host, HostRef, pool_name
from bramley.providers.selection import HostRequirements, claimable


class Step(Enum):
    """The next step of a machine that has the Lease of a host."""

    USE = "use"
    CLAIM = "claim"
    WAIT = "wait"
    GIVE_UP = "give up"
    # The host is not used, and the Lease is kept: a person has to repair it.
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Decision:
    """A step and why."""

    step: Step
    why: str = ""


def decide(
    host: Host | None, required: HostRequirements, *, is_bound: bool, is_settled: bool
) -> Decision:
    """Return the next step with a host as it is read now; None is one that is not rented any more.

    A bound machine had its claim completed, and its host may have run VMs: it never gets another host here.
    """
    if host is None:
        why = "the host is not rented any more"
    elif host.name == required.name:
        return _with_own_name(host, required, is_bound=is_bound)
    elif host.name.startswith(machines.CLAIM_PREFIX) or is_in_pool(
        host, required, is_bound=is_bound
    ):
        if host.can_be_claimed and (is_bound or not misfit(host, required)):
            return Decision(Step.CLAIM)
        why = misfit(host, required) or f"the host is {host.status}"
        if is_bound:
            return Decision(Step.WAIT, why)
    else:
        why = f"the host has the name {host.name[:100]!r} and not {required.name!r}"
    if is_bound:
        return Decision(Step.REPORT, why)
    return Decision(Step.GIVE_UP if is_settled else Step.WAIT, why)


def is_in_pool(host: Host, required: HostRequirements, *, is_bound: bool) -> bool:
    """Return whether a host is in the pool; one of a bound machine was renamed by another caller."""
    return not is_bound and host.name.startswith(required.pool_prefix)


def _with_own_name(host: Host, required: HostRequirements, *, is_bound: bool) -> Decision:
    if is_bound:
        return Decision(Step.USE)
    why = misfit(host, required)
    if why:
        return Decision(Step.REPORT, f"the host has the name of the machine, and {why}")
    if host.can_be_claimed:
        return Decision(Step.USE)
    return Decision(Step.WAIT, f"the host is {host.status}")


def misfit(host: Host, required: HostRequirements) -> str:
    """Return why a host has not the type or the operating system of the machine; empty if it has."""
    if host.type != required.type:
        return f"its type is {host.type} and not {required.type}"
    if not is_of_family(host.os_names, required.os):
        return f"its operating system is {', '.join(host.os_names)} and not {required.os}"
    return ""


def choose(
    hosts: Iterable[Host],
    required: HostRequirements,
    *,
    leased: AbstractSet[str],
    quarantined: AbstractSet[str] = frozenset(),
) -> list[Host] | Decision:
    """Return the hosts to try, in this order, or why there is none.

    A host with the machine's name and without a Lease of another machine is the only candidate: with a second one, the machine would
    have two. If it does not fit, a person has to decide what becomes of it.
    """
    available = [host for host in hosts if host.ref.id not in leased]
    for host in available:
        if host.name == required.name and (why := misfit(host, required)):
            text = f"host {host.ref} has the name of the machine, and {why}; rename or release it"
            return Decision(Step.REPORT, text)
    own = {host.ref.id for host in available if host.name == required.name}
    candidates = claimable(available, required, excluded=quarantined - own)
    if candidates:
        return candidates
    if own:
        return Decision(Step.WAIT, f"the host {', '.join(sorted(own))} of this name is not ready")
    free = f"a name with the prefix {required.pool_prefix}"
    return Decision(
        Step.WAIT, f"no host of type {required.type} and {required.os} is ready and has {free}"
    )


class Ending(Enum):
    """How a host is released."""

    RELEASE = "release"
    # It was renamed into the pool by hand, without a reinstallation.
    REINSTALL = "reinstall"
    # The machine never had it, or it is gone.
    NOTHING = "nothing"
    # It has another owner now, and perhaps the data of the machine.
    REFUSE = "refuse"


def decide_release(
    host: Host | None, ref: HostRef, name: str, *, pool_prefix: str, was_bound: bool
) -> Ending:
    """Return how the host of a machine of this name is released; assumes that all earlier claims have settled."""
    if host is None:
        return Ending.NOTHING
    owned = {name, pool_name(pool_prefix, ref)}
    if host.name in owned or host.name.startswith(machines.CLAIM_PREFIX):
        return Ending.RELEASE
    if not was_bound:
        return Ending.NOTHING
    return Ending.REINSTALL if host.name.startswith(pool_prefix) else Ending.REFUSE
