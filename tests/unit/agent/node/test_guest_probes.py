"""A guest that stops answering is believed to be silent only when it lasts, and only while tart itself is well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.agent.node import guest_probes
from bramley.agent.node.guest_probes import GuestProbes
from bramley.agent.programs import Finished
from bramley.base import errors


@dataclass
class Mac:
    """Guests by how often they are silent from now on, a tart that may be sick, and ears that know who has answered."""

    silences: dict[str, int]
    responsive: set[str] = field(default_factory=set)
    unresponsive: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    sick_looks: tuple[int, ...] = ()
    looks: int = 0
    probed: list[str] = field(default_factory=list)

    def probes(self) -> GuestProbes:
        return GuestProbes(self, self, running=lambda: self.silences, check_tart=self.check_tart)

    async def exec(self, vm: str, argv: Sequence[str], *, limit: timedelta) -> Finished:
        assert tuple(argv) == guest_probes.COMMAND
        self.probed.append(vm)
        self.silences[vm] -= 1
        if self.silences[vm] >= 0:
            await asyncio.sleep(limit.total_seconds())
            raise errors.TimedOut("the guest does not answer")
        return Finished(0, "Filesystem\n/dev/disk 5% /")

    async def check_tart(self) -> None:
        self.looks += 1
        if self.looks in self.sick_looks:
            raise errors.TimedOut("tart does not answer")

    def expected_to_respond(self, vms: Iterable[str]) -> list[str]:
        return [vm for vm in vms if vm in self.known]

    def record(self, *, responsive: Iterable[str] = (), unresponsive: Iterable[str] = ()) -> None:
        self.responsive.update(responsive)
        self.unresponsive.update(unresponsive)


async def test_silence_that_lasts_is_believed() -> None:
    mac = Mac({"a": 9, "b": 0}, known={"a", "b"})
    began = asyncio.get_running_loop().time()

    disks = await mac.probes().probe()

    assert (mac.unresponsive, mac.responsive, disks) == ({"a"}, {"b"}, {"b": 5.0})
    assert mac.probed == ["a", "b", "a"]
    # With the minute until the look begins, this is what 90 s are made of.
    limit, doubt = guest_probes.LIMIT.total_seconds(), guest_probes.RECHECK_AFTER.total_seconds()
    assert asyncio.get_running_loop().time() - began == 2 * limit + doubt <= 29


async def test_one_silence_is_not_believed() -> None:
    mac = Mac({"a": 1}, known={"a"})

    disks = await mac.probes().probe()

    assert (mac.unresponsive, mac.responsive, disks) == (set(), {"a"}, {"a": 5.0})


async def test_guest_whose_silence_is_no_news_is_asked_once() -> None:
    mac = Mac({"never": 9})

    await mac.probes().probe()

    assert (mac.unresponsive, mac.probed, mac.looks) == (set(), ["never"], 0)


async def test_silence_under_a_sick_tart_means_nothing() -> None:
    first = Mac({"a": 9}, known={"a"}, sick_looks=(1,))
    second = Mac({"a": 9}, known={"a"}, sick_looks=(2,))

    await first.probes().probe()
    await second.probes().probe()

    assert (first.unresponsive, second.unresponsive) == (set(), set())


async def test_guest_that_has_ended_meanwhile_is_not_asked_again() -> None:
    mac = Mac({"a": 9}, known={"a"})
    async with asyncio.TaskGroup() as group:
        group.create_task(mac.probes().probe())
        await asyncio.sleep(guest_probes.LIMIT.total_seconds() + 1)
        del mac.silences["a"]

    assert (mac.unresponsive, mac.probed) == (set(), ["a"])
