"""Layouts of structs: those of Darwin by vectors written by hand from Apple's headers, because no Mac is available."""

from __future__ import annotations

import struct
from datetime import timedelta

import pytest

from bramley.agent.platform import darwin, interfaces, locks
from bramley.agent.platform.interfaces import Interface

# struct flock of Darwin: l_start (8), l_len (8), l_pid (4), l_type (2), l_whence (2).
DARWIN_QUESTION = bytes.fromhex("0000000000000000 0000000000000000 00000000 0100 0000")
DARWIN_HELD = bytes.fromhex("0000000000000000 0000000000000000 d2040000 0300 0000")
DARWIN_FREE = bytes.fromhex("0000000000000000 0000000000000000 00000000 0200 0000")
# struct flock of Linux: l_type (2), l_whence (2), hole (4), l_start (8), l_len (8), l_pid (4), hole (4).
LINUX_QUESTION = bytes(32)
LINUX_HELD = bytes.fromhex("0100 0000 00000000 0000000000000000 0000000000000000 d2040000 00000000")
LINUX_FREE = bytes.fromhex("0200 0000 00000000 0000000000000000 0000000000000000 00000000 00000000")


@pytest.mark.parametrize(
    ("layout", "question", "held", "free"),
    [
        (locks.DARWIN, DARWIN_QUESTION, DARWIN_HELD, DARWIN_FREE),
        (locks.LINUX, LINUX_QUESTION, LINUX_HELD, LINUX_FREE),
    ],
    ids=["darwin", "linux"],
)
def test_lock_query_is_packed_and_its_holder_unpacked(
    layout: locks.FlockLayout, question: bytes, held: bytes, free: bytes
) -> None:
    assert layout.request() == question
    assert layout.parse_holder(held) == 1234
    assert layout.parse_holder(free) is None


def test_ioctl_has_the_number_of_each_system() -> None:
    assert (locks.LINUX.get, locks.DARWIN.get) == (5, 7)


def a_bsd_info(*, status: int = 2, parent: int = 1, start: int = 1_794_801_293) -> bytes:
    numbers = struct.pack("<12I", 0, status, 0, 4321, parent, 501, 20, 501, 20, 501, 20, 0)
    names = b"tart".ljust(16, b"\0") + b"tart".ljust(32, b"\0")
    more = struct.pack("<6I", 9, 4321, 0, 0, 0, 0)
    return numbers + names + more + struct.pack("<QQ", start, 500_000)


def test_bsd_info_has_parent_start_and_exit_state() -> None:
    info = darwin.bsd_info(a_bsd_info(parent=77))

    assert darwin.BSD_SIZE == 136
    assert (info.parent, info.start_seconds, info.is_zombie) == (77, 1_794_801_293, False)
    assert darwin.bsd_info(a_bsd_info(status=5)).is_zombie


def test_task_info_has_memory_and_cpu_time() -> None:
    answer = struct.pack("<6Q12i", 10**12, 300_000_000, 24_000_000, 6_000_000, 0, 0, *[0] * 12)

    info = darwin.task_info(answer)

    assert darwin.TASK_SIZE == len(answer) == 96
    assert (info.resident_bytes, info.cpu_ticks) == (300_000_000, 30_000_000)
    # On Apple silicon a tick is 125/3 ns.
    lasted = darwin.ticks_to_timedelta(info.cpu_ticks, numerator=125, denominator=3)
    assert lasted == timedelta(seconds=1.25)


def test_macos_arguments_lie_between_path_and_environment() -> None:
    answer = (
        struct.pack("<i", 4)
        + b"/usr/local/lib/tart.app/Contents/MacOS/tart\0\0\0\0\0\0"
        + b"tart\0run\0ns-pod\0\0"
        + b"HOME=/Users/m1\0PATH=/bin\0"
    )

    assert darwin.arguments(answer) == ("tart", "run", "ns-pod", "")


def test_process_without_arguments_has_none() -> None:
    assert darwin.arguments(struct.pack("<i", 0) + b"/sbin/x\0\0\0") == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Mon Nov 16 03:54:53 2026", 1_794_801_293),
        ("  Mon Nov 16 03:54:53 2026    \n", 1_794_801_293),
        ("Thu Jan  1 00:00:07 1970", 7),
        ("Mo 16 Nov 03:54:53 2026", None),
        ("", None),
    ],
)
def test_start_time_of_ps_is_parsed(text: str, seconds: int | None) -> None:
    assert darwin.parse_start(text) == seconds


@pytest.mark.parametrize("seconds", [7, 1_794_801_293, 951_782_400])
def test_start_time_is_formatted_as_it_is_parsed(seconds: int) -> None:
    assert darwin.parse_start(darwin.format_start(seconds)) == seconds


def an_answer(*, flags: int, address: tuple[int, ...], family: bytes) -> tuple[bytes, bytes]:
    name = b"en0".ljust(16, b"\0")
    request = name + struct.pack("<H", flags) + bytes(14)
    return request, name + family + b"\0\0" + bytes(address) + bytes(8)


@pytest.mark.parametrize("family", [b"\x10\x02", b"\x02\x00"], ids=["darwin", "linux"])
def test_interface_is_read_on_both_systems(family: bytes) -> None:
    flags, address = an_answer(flags=0x8863, address=(10, 1, 2, 3), family=family)

    assert interfaces.decode("en0", flags=flags, address=address) == Interface(
        "en0", 0x8863, "10.1.2.3"
    )


UP = 0x1


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ([Interface("lo0", UP | 0x8, "127.0.0.1"), Interface("en0", UP, "10.0.0.2")], "10.0.0.2"),
        ([Interface("en0", 0, "10.0.0.2"), Interface("en1", UP, "10.0.0.3")], "10.0.0.3"),
        ([Interface("en0", UP, "169.254.7.7"), Interface("en1", UP, "10.0.0.3")], "10.0.0.3"),
        ([Interface("bridge100", UP, "192.168.64.1"), Interface("vmnet1", UP, "10.9.0.1")], None),
        ([], None),
    ],
)
def test_hosts_address_is_the_first_that_others_can_reach(
    there: list[Interface], found: str | None
) -> None:
    assert interfaces.first_reachable(there) == found
