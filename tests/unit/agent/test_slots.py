"""Which processes take slots, as a table: VMs of the ledger, other macOS and Linux guests, and processes without a name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from bramley.agent.gc.leases import Lease
from bramley.agent.host import HostProcess
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.slots import EXIT_GRACE, FORGET_REFUSAL_AFTER, Slots
from tests import virtual_time

SERVICE = "/System/Library/Frameworks/com.apple.Virtualization.VirtualMachine"
LINUX = "ubuntu"


@dataclass
class Mac:
    """A host, its ledger, its runs and its tart, as far as slots read them."""

    own: tuple[str, ...] = ()
    commands: list[str] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)

    def vms(self) -> dict[str, VmRecord]:
        state = VmState.STARTED
        return {
            vm: VmRecord(vm=vm, namespace="ns", pod=vm, uid=vm, image="i", state=state)
            for vm in self.own
        }

    def exists(self, _: str) -> bool:
        return True

    def is_alive(self, vm: str) -> bool:
        return any(f"run {vm}" in command for command in self.commands)

    def is_running(self, _vm: str, _host: object) -> bool:
        return False

    def is_linux(self, vm: str, home: str = "") -> bool:
        return vm == LINUX or home == "/linux"

    def boot_id(self) -> str:
        return "boot"

    def guest_processes(self) -> list[HostProcess]:
        # The newest first, as macOS lists them.
        listed = enumerate(self.commands, start=10)
        return [_process(pid, command) for pid, command in listed if command != "ended"][::-1]

    def ancestors(self, pid: int) -> list[int]:
        found = [pid] if pid < 10 + len(self.commands) else []
        while (pid := self.parents.get(pid, 0)) and found:
            found.append(pid)
        return found


def _process(pid: int, command: str) -> HostProcess:
    home, _, rest = command.rpartition(" TART ")
    return HostProcess(pid, tuple(rest.split()), home)


def slots_of(mac: Mac, max_vms: int = 2, *leases: Lease) -> Slots:
    anything = cast("Any", mac)
    return Slots(
        anything,
        runs=anything,
        tart=anything,
        host=anything,
        clock=virtual_time.clock(),
        max_vms=max_vms,
        leases=lambda: leases,
    )


OWN, OTHER, BAKE, UBUNTU = "tart run own", "tart run other", "tart run bake", f"tart run {LINUX}"
TABLE: dict[str, tuple[list[str], int, bool]] = {
    "nothing": ([], 2, True),
    "one of ours": ([OWN, SERVICE], 2, True),
    "two of ours": ([OWN, SERVICE, OTHER, SERVICE], 2, False),
    "one of ours, one slot": ([OWN, SERVICE], 1, False),
    "two of ours, three Pods": ([OWN, SERVICE, OTHER, SERVICE], 3, False),
    "a bake": ([BAKE, SERVICE], 2, True),
    "a bake and one of ours": ([BAKE, SERVICE, OWN, SERVICE], 2, False),
    "a bake, one slot": ([BAKE, SERVICE], 1, True),
    "a bake twice in the table": (["sh tart run bake", BAKE, SERVICE], 2, True),
    "Linux and one of ours": ([UBUNTU, SERVICE, OWN, SERVICE], 2, True),
    "Linux and two of ours": ([UBUNTU, SERVICE, OWN, SERVICE, OTHER, SERVICE], 2, False),
    "Docker and one of ours": ([SERVICE, OWN, SERVICE], 2, True),
    "Docker three times, and one of ours": ([SERVICE, SERVICE, SERVICE, OWN, SERVICE], 2, True),
    "Docker and a bake": ([SERVICE, BAKE, SERVICE], 2, True),
    "a tart that starts beside Docker": ([SERVICE, OWN], 2, True),
    "Linux in another folder": (["/linux TART tart run elsewhere", SERVICE, OWN, SERVICE], 2, True),
    "macOS in another folder": (["/else TART tart run elsewhere", SERVICE, OWN, SERVICE], 2, False),
    "an option before the name": (["tart run --dir a:/b --no-graphics ubuntu", SERVICE, OWN], 2, True),
    "an option with its value": (["tart run --dir=a:/b ubuntu", SERVICE, OWN], 2, True),
    "a tart without a name": (["tart run --no-graphics", OWN], 2, True),
}  # fmt: skip


@pytest.mark.parametrize(("commands", "max_vms", "expected"), TABLE.values(), ids=TABLE.keys())
async def test_only_macos_guests_take_slots(
    commands: list[str], max_vms: int, *, expected: bool
) -> None:
    slots = slots_of(Mac(("own", "other"), commands), max_vms)
    slots.leaks()
    await asyncio.sleep(EXIT_GRACE.total_seconds())

    assert slots.has_room("new") == expected


LEASES: dict[str, tuple[list[Lease], bool]] = {
    "none": ([], False),
    "by name": ([Lease(vms=("bake",), pid=11)], True),
    "everything": ([Lease(pid=11)], True),
    "another VM": ([Lease(vms=("base",), pid=11)], False),
    "its own process": ([Lease(vms=("base",), pid=10)], True),
    "an ancestor": ([Lease(vms=("base",), pid=5)], True),
    "a command that has ended": ([Lease(vms=("base",), pid=99)], True),
    "one of two": ([Lease(vms=("base",), pid=11), Lease(vms=("bake",), pid=12)], True),
}


@pytest.mark.parametrize(("leases", "is_leased"), LEASES.values(), ids=LEASES.keys())
async def test_bake_is_a_leak_unless_a_lease_covers_it(
    leases: list[Lease], *, is_leased: bool
) -> None:
    mac = Mac(commands=[BAKE, SERVICE, UBUNTU, SERVICE, SERVICE], parents={10: 7, 7: 5, 5: 1})
    slots = slots_of(mac, 2, *leases)
    slots.leaks()
    await asyncio.sleep(EXIT_GRACE.total_seconds())
    taken = slots.taken_by_others()

    assert (len(taken.leaks), taken.leased) == ((0, ("bake",)) if is_leased else (1, ()))
    assert slots.has_room("new")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"vm":"a","taken":-1,"services":[]}'])
async def test_damaged_refusal_is_ignored(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "refusal"
    file.write_bytes(content)
    slots = slots_of(Mac())
    slots.refusal_file = file
    slots.__post_init__()

    assert not slots.leaks()


def _gone(mac: Mac, *pids: int) -> None:
    """End processes; the others keep their pids."""
    for pid in pids:
        mac.commands[pid - 10] = "ended"


async def test_service_of_another_program_is_not_taken_for_a_guest_that_is_ending() -> None:
    """Docker started last: when a VM ends with its service, the next VM must not wait."""
    mac = Mac(("a", "b"), ["tart run a", SERVICE, "tart run b", SERVICE, SERVICE])
    slots = slots_of(mac)
    assert not slots.has_room("c")
    await asyncio.sleep(60)
    _gone(mac, 10, 11)
    assert slots.has_room("c")


async def test_guest_that_is_ending_takes_its_slot_also_after_another_did() -> None:
    mac = Mac(("a", "b"), ["tart run a", SERVICE, "tart run b", SERVICE])
    slots = slots_of(mac)
    assert not slots.has_room("c")
    # The tart of the younger one ends, and then its service.
    _gone(mac, 12)
    assert not slots.has_room("c")
    _gone(mac, 13)
    assert slots.has_room("c")
    await asyncio.sleep(60)
    mac.own = ("a", "b", "c")
    mac.commands += ["tart run c", SERVICE]
    assert not slots.has_room("d")
    # The tart of the older one ends, and its service a moment later.
    _gone(mac, 10)
    assert not slots.has_room("d")
    await asyncio.sleep(1)
    assert not slots.has_room("d")
    _gone(mac, 11)
    assert slots.has_room("d")


async def test_refusal_is_forgotten_after_an_hour_although_another_program_still_runs() -> None:
    slots = slots_of(Mac(commands=[SERVICE]))
    slots.leaks()
    await asyncio.sleep(EXIT_GRACE.total_seconds())
    slots.record_refusal("own")
    reported = slots.leaks()

    await asyncio.sleep(FORGET_REFUSAL_AFTER.total_seconds())

    assert (len(reported), slots.leaks()) == (2, ())
