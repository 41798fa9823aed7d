"""Which hosts of a fleet may get a new configuration now, and when failed updates are tried again. Pure.

One host of a fleet gets it first. The others follow, a limited number at a time, once a host of the fleet has it and its Node is
Ready. If that host fails for good, nothing else is updated: the next ones would fail in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.api.mac_status import MacStatus
from bramley.api.names import events

# Between a failed update and the next attempt.
RETRY = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The pace of updates, and their budget."""

    # Of a fleet, at least one host; hosts whose Node is not Ready count.
    max_unavailable_percent: int = 10
    # 0: not limited.
    max_attempts: int = 5
    # 0: only a new configuration.
    terminal_retry_after: timedelta = timedelta(minutes=30)

    def max_unavailable(self, hosts: int) -> int:
        """Return how many hosts of a fleet may be unavailable at once."""
        return max(1, hosts * self.max_unavailable_percent // 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A host of the fleet that has been bootstrapped."""

    name: str
    is_outdated: bool = False
    # Its Node is Ready and takes Pods.
    is_available: bool = True
    # An operation waits or runs.
    is_updating: bool = False
    # Its attempts to get the desired configuration are used up.
    is_terminal: bool = False
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a host must wait; the reason is that of its condition."""

    reason: str
    message: str


def refusal(name: str, members: Sequence[Member], settings: Settings) -> Refusal | None:
    """Return why this host must not be updated now, or None."""
    others = [each for each in members if each.name != name]
    own = next(each for each in members if each.name == name)
    # A host that has the configuration, and needs maintenance, is no canary.
    limit = settings.max_unavailable(len(members))
    if own.is_outdated and not any(_is_proven(each) for each in members):
        return _canary_refusal(own, others, limit)
    unavailable = sum(each.is_updating or not each.is_available for each in others)
    if own.is_available and unavailable >= limit:
        # Without the present number: each change of it would be a write for every host that waits.
        text = f"of the {len(members)} hosts of the fleet, {limit} may be unavailable or updated at once"
        return Refusal(events.WAITING_FOR_SLOT, text)
    # A host that is unavailable anyway takes nothing from the fleet; still only as many at once.
    updating = sum(each.is_updating for each in others)
    if updating >= limit:
        text = f"of the {len(members)} hosts of the fleet, {limit} may be updated at once"
        return Refusal(events.WAITING_FOR_SLOT, text)
    return None


def _is_proven(member: Member) -> bool:
    """Return whether a host shows that the new configuration works."""
    return not member.is_outdated and not member.is_updating and member.is_available


def _canary_refusal(own: Member, others: Sequence[Member], limit: int) -> Refusal | None:
    failed = sorted(each.name for each in others if each.is_terminal)
    if failed:
        text = f"the update of {failed[0]} has failed; it is tried again after a while, or with another configuration"
        return Refusal(events.CANARY_FAILED, text)
    updating = sorted(each.name for each in others if each.is_updating)
    if updating:
        text = f"{updating[0]} is updated first"
        return Refusal(events.WAITING_FOR_CANARY, text)
    # Those that already have it and are not Ready yet were the first ones.
    settling = sorted(each.name for each in others if not each.is_outdated)
    if settling:
        text = f"{settling[0]} was updated and its Node is not Ready"
        return Refusal(events.WAITING_FOR_CANARY, text)
    # No other host may become unavailable after as many that were lost, perhaps by this configuration: one of them is tried again.
    is_full = sum(not each.is_available for each in (own, *others)) >= limit
    first = min(
        (own, *others), key=lambda each: (each.is_available is is_full, each.is_busy, each.name)
    )
    if first is own:
        return None
    return Refusal(events.WAITING_FOR_CANARY, f"{first.name} is updated first")


def is_terminal(status: MacStatus, desired: str, now: datetime, settings: Settings) -> bool:
    """Return whether the attempts to apply this configuration are used up, and it is too early for others.

    A failure without a time, as the existing provider may have left it, is tried again at once.
    """
    if not status.failed_host_config_hash or status.failed_host_config_hash != desired:
        return False
    since, wait = status.last_update_failure_time, settings.terminal_retry_after
    return since is not None and (not wait or now < since + wait)


def is_exhausted(attempts: int, settings: Settings) -> bool:
    """Return whether the last failure was that of the last attempt."""
    return 0 < settings.max_attempts <= attempts


def wait_left(status: MacStatus, now: datetime) -> timedelta:
    """Return how long to wait before the next attempt; zero if it may begin."""
    since = status.last_update_failure_time
    if since is None or not status.tart_kubelet_update_attempts:
        return timedelta()
    return max(since + RETRY - now, timedelta())
