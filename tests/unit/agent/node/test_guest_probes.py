"""A guest is unresponsive only after repeated probes, and only while tart itself works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.agent.node import guest_probes
from bramley.agent.node.guest_probes import GuestProbes
from bramley.agent.programs import ProgramResult
from bramley.base import errors


@dataclass
class Mac:
    """Guests with the number of probes they leave unanswered, a tart that may hang, and a record of the guests that answered before."""

    silences: dict[str, int]
    responsive: set[str] = field(default_factory=set)
    unresponsive: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    failing_checks: tuple[int, ...] = ()
    checks: int = 0
    probed: list[str] = field(default_factory=list)

    def probes(self) -> GuestProbes:
        return GuestProbes(self, self, running=lambda: self.silences, check_tart=self.check_tart)

    async def exec(self, vm: str, argv: Sequence[str], *, limit: timedelta) -> ProgramResult:
        assert tuple(argv) == guest_probes.COMMAND
        self.probed.append(vm)
        self.silences[vm] -= 1
        if self.silences[vm] >= 0:
            await asyncio.sleep(limit.total_seconds())
            raise errors.TimedOut("the guest does not answer")
        return ProgramResult(0, "Filesystem\n/dev/disk 5% /")

    async def check_tart(self) -> None:
        self.checks += 1
        if self.checks in self.failing_checks:
            raise errors.TimedOut("tart does not answer")

    def expected_to_respond(self, vms: Iterable[str]) -> list[str]:
        return [vm for vm in vms if vm in self.known]

    def record(self, *, responsive: Iterable[str] = (), unresponsive: Iterable[str] = ()) -> None:
        self.responsive.update(responsive)
        self.unresponsive.update(unresponsive)


async def test_guest_that_misses_two_probes_is_unresponsive() -> None:
    mac = Mac({"a": 9, "b": 0}, known={"a", "b"})
    began = asyncio.get_running_loop().time()

    disks = await mac.probes().probe()

    assert (mac.unresponsive, mac.responsive, disks) == ({"a"}, {"b"}, {"b": 5.0})
    assert mac.probed == ["a", "b", "a"]
    # With the minute until the probe begins, these are the 90 s.
    limit, doubt = guest_probes.TIMEOUT.total_seconds(), guest_probes.RECHECK_AFTER.total_seconds()
    assert asyncio.get_running_loop().time() - began == 2 * limit + doubt <= 29


async def test_guest_that_misses_one_probe_is_responsive() -> None:
    mac = Mac({"a": 1}, known={"a"})

    disks = await mac.probes().probe()

    assert (mac.unresponsive, mac.responsive, disks) == (set(), {"a"}, {"a": 5.0})


async def test_guest_that_never_answered_is_probed_once() -> None:
    mac = Mac({"never": 9})

    await mac.probes().probe()

    assert (mac.unresponsive, mac.probed, mac.checks) == (set(), ["never"], 0)


async def test_silence_while_tart_hangs_is_ignored() -> None:
    first = Mac({"a": 9}, known={"a"}, failing_checks=(1,))
    second = Mac({"a": 9}, known={"a"}, failing_checks=(2,))

    await first.probes().probe()
    await second.probes().probe()

    assert (first.unresponsive, second.unresponsive) == (set(), set())


async def test_guest_that_ended_meanwhile_is_not_probed_again() -> None:
    mac = Mac({"a": 9}, known={"a"})
    async with asyncio.TaskGroup() as group:
        group.create_task(mac.probes().probe())
        await asyncio.sleep(guest_probes.TIMEOUT.total_seconds() + 1)
        del mac.silences["a"]

    assert (mac.unresponsive, mac.probed) == (set(), ["a"])
