"""What `Binding.bind` and `Releases.release` return: the machine as written last, what to report, and when to look again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Literal

from bramley.api.names import conditions, events
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.providers.provider import Host
from bramley.runtime.events import EventType

Severity = Literal["", "Error", "Warning", "Info"]


class ProviderFailed(Exception):
    """A call of the provider failed; kept apart from errors of the API, which the runtime handles."""

    def __init__(self, text: str, *, after: timedelta | None = None) -> None:
        super().__init__(text)
        self.after = after


@dataclass(frozen=True, slots=True)
class MachineEvent:
    """An event about a machine."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """How a reason is reported: severity and type of the condition that is False, when to try again, and the event, if any."""

    severity: Severity
    after: timedelta
    event: str
    condition: str = conditions.PROVISIONED


_HALF, _MINUTE, _LONG = (timedelta(seconds=each) for each in (30, 60, 300))

REPORTS = MappingProxyType(
    {
        # The machine waits, and nothing is wrong.
        events.ADOPTING: Report("Info", _HALF, ""),
        events.RELEASING: Report("Info", _HALF, ""),
        events.NO_ADOPT_POOL_PREFIX: Report("Error", _LONG, events.NO_ADOPT_POOL_PREFIX),
        events.INVALID_OS_PIN: Report("Error", _LONG, events.INVALID_OS_PIN),
        events.NO_AVAILABLE_HOST: Report("Warning", _MINUTE, events.NO_AVAILABLE_HOST),
        events.ADOPT_FAILED: Report("Error", _HALF, events.PROVISIONING_FAILED),
        events.CREDENTIALS_PERSIST_FAILED: Report("Error", _HALF, events.PROVISIONING_FAILED),
        events.HOST_NAME_CHANGED: Report("Error", _LONG, events.HOST_NAME_CHANGED),
        events.HOST_GONE: Report("Error", _LONG, events.HOST_GONE),
        events.CREDENTIALS_REFRESH_FAILED: Report(
            "Warning", _HALF, events.CREDENTIALS_REFRESH_FAILED, conditions.BOOTSTRAPPED
        ),
        events.MISSING_SUDO_PASSWORD: Report(
            "Error", _LONG, events.MISSING_SUDO_PASSWORD, conditions.BOOTSTRAPPED
        ),
        events.RELEASE_FAILED: Report("Warning", _MINUTE, events.RELEASE_FAILED),
        events.DELETE_FAILED: Report("Warning", _HALF, events.DELETE_FAILED),
    }
)


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """The result; without a reason, the machine has its host and credentials, or has released everything."""

    machine: ScalewayAppleSiliconMachine
    host: Host | None = None
    # Of the condition that is False; `REPORTS` has its type and severity.
    reason: str = ""
    message: str = ""
    requeue_after: timedelta | None = None
    events: tuple[MachineEvent, ...] = ()

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to do."""
        return not self.reason


def waiting(
    machine: ScalewayAppleSiliconMachine,
    reason: str,
    message: str,
    *,
    before: tuple[MachineEvent, ...] = (),
    after: timedelta | None = None,
) -> HostOutcome:
    """Return the outcome of a machine that has to wait for this reason."""
    report = REPORTS[reason]
    found = [MachineEvent("Warning", report.event, message)] if report.event else []
    return HostOutcome(
        machine,
        reason=reason,
        message=message,
        requeue_after=after or report.after,
        events=(*before, *found),
    )
