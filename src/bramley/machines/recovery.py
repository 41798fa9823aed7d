"""What follows a bootstrap that has failed: another attempt, a reboot of the host, or another host. Pure.

The time of the last failure is in the status, and not only in a queue: each write of the status queues the machine again, so a delay
of the queue alone would use up all attempts within a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from bramley.api.mac_status import MacStatus

RETRY = timedelta(seconds=60)
# Where neither a reboot nor another host can help: a Mac that its team owns.
LATE_RETRY = timedelta(minutes=10)


class Recovery(Enum):
    """What to do for a host that is not bootstrapped."""

    BOOTSTRAP = "bootstrap"
    REBOOT = "reboot"
    RELEASE = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """After how many failures in a row a host is rebooted, once, and released; 0: never."""

    reboot_after: int = 3
    max_attempts: int = 8


def recovery(status: MacStatus, settings: Settings, *, is_rented: bool) -> Recovery:
    """Return the next action; only a provider can reboot a host that does not answer, and has other hosts."""
    attempts = status.bootstrap_attempts
    if is_rented and 0 < settings.max_attempts <= attempts:
        return Recovery.RELEASE
    is_due = 0 < settings.reboot_after <= attempts
    if is_rented and is_due and not status.bootstrap_reboot_issued:
        return Recovery.REBOOT
    return Recovery.BOOTSTRAP


def wait_left(status: MacStatus, settings: Settings, now: datetime) -> timedelta:
    """Return how long to wait before the next action; zero if it may begin."""
    since = status.last_bootstrap_failure_time
    if since is None:
        return timedelta()
    is_late = 0 < settings.max_attempts <= status.bootstrap_attempts
    return max(since + (LATE_RETRY if is_late else RETRY) - now, timedelta())
