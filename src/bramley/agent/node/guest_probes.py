"""Probes the guests of running VMs; a guest is unresponsive only if it fails twice and neither tart nor the host explains it.

The probe also measures the guest's disk, so liveness costs no extra command. Results go to a `LivenessSink`. Nothing is done about
an unresponsive guest: it may lack CPU time and still run its job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Protocol

from bramley.agent.programs import ProgramResult
from bramley.agent.tart import failures
from bramley.base import errors, log

logger = log.get(__name__)

COMMAND = ("/bin/df", "-k", "/")
# A little more than tart's own timeout for the guest agent.
TIMEOUT = timedelta(seconds=12)


class GuestExec(Protocol):
    """Runs commands in guests; implemented by `tart.driver.Tart`."""

    async def exec(self, vm: str, argv: Sequence[str], *, limit: timedelta) -> ProgramResult:
        """Run a command in the guest of a VM."""
        ...


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """Disk usage in percent, and which guests responded and which did not; a guest may be in neither set."""

    disks: Mapping[str, float]
    responsive: frozenset[str] = frozenset()
    unresponsive: frozenset[str] = frozenset()


async def probe_guests(guests: GuestExec, vms: Iterable[str]) -> ProbeResults:
    """Probe these guests concurrently."""
    names = sorted(vms)
    results = await asyncio.gather(*(_probe_guest(guests, vm) for vm in names))
    finished = {vm: result for vm, result in zip(names, results, strict=True) if result is not None}
    responsive = frozenset(vm for vm, result in finished.items() if result.code == 0)
    disks = {vm: used_percent(finished[vm].stdout) for vm in responsive}
    return ProbeResults(
        disks={vm: used for vm, used in disks.items() if used is not None},
        responsive=responsive,
        unresponsive=frozenset(finished) - responsive,
    )


async def _probe_guest(guests: GuestExec, vm: str) -> ProgramResult | None:
    """Return the result of the command; None if it does not show whether the guest responds."""
    try:
        result = await guests.exec(vm, COMMAND, limit=TIMEOUT)
    except errors.TimedOut:
        return ProgramResult(code=-1)
    except errors.BramleyError:
        return None
    has_ended = failures.is_not_running(result) or failures.is_missing(result)
    return None if has_ended else result


def used_percent(output: str) -> float | None:
    """Parse the first percentage of `df -k /`: that of blocks; the one of inodes comes later."""
    lines = output.strip().splitlines()
    if len(lines) < 2:
        return None
    for column in lines[-1].split():
        number = column.removesuffix("%")
        if number != column and number.isdecimal():
            return float(number)
    return None


# With a minute between two probes and two commands that time out, a hung guest is reported within 90 s.
RECHECK_AFTER = timedelta(seconds=3)


class LivenessSink(Protocol):
    """Stores which guests respond; implemented by `pods.guest_liveness.GuestLiveness`."""

    def expected_to_respond(self, vms: Iterable[str]) -> Collection[str]:
        """Return the VMs whose guest has responded before and is not known to be unresponsive."""
        ...

    def record(self, *, responsive: Iterable[str] = (), unresponsive: Iterable[str] = ()) -> None:
        """Store certain results."""
        ...


@dataclass(frozen=True, slots=True)
class GuestProbes:
    """Probes all guests. `check_tart` raises an error if tart or the host has a problem that explains missing responses."""

    guests: GuestExec
    sink: LivenessSink
    _: KW_ONLY
    running: Callable[[], Iterable[str]]
    check_tart: Callable[[], Awaitable[None]]

    async def probe(self) -> Mapping[str, float]:
        """Probe all guests and return the disk usage of those that respond."""
        first = await probe_guests(self.guests, self.running())
        self.sink.record(responsive=first.responsive)
        suspects = set(self.sink.expected_to_respond(first.unresponsive))
        if not suspects or not await self._is_tart_healthy():
            return first.disks
        await asyncio.sleep(RECHECK_AFTER.total_seconds())
        # A VM that has ended meanwhile is not probed again.
        second = await probe_guests(self.guests, suspects.intersection(self.running()))
        self.sink.record(responsive=second.responsive)
        if second.unresponsive and await self._is_tart_healthy():
            self.sink.record(unresponsive=second.unresponsive)
        return {**first.disks, **second.disks}

    async def _is_tart_healthy(self) -> bool:
        try:
            await self.check_tart()
        except errors.BramleyError as error:
            logger.info("Ignoring unresponsive guests while tart fails", error=str(error))
            return False
        return True
