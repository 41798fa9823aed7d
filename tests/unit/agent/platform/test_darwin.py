"""The Darwin platform on a fake C library with the structs of the layout vectors."""

from __future__ import annotations

import ctypes
import os
import struct
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from bramley.agent.host import SystemInfo
from bramley.agent.platform.darwin import DarwinHost
from bramley.agent.tart.driver import Tart
from tests.unit.agent.platform.test_layouts import a_bsd_info

BOOT = b"0B2B1F3C-0000-4000-8000-000000000001"
UUID = uuid.UUID("564D1A2B-0000-4000-8000-00000000CAFE")


class Library:
    """Fills buffers as macOS does; a pid that is not in a table does not exist."""

    def __init__(self) -> None:
        self.bsd: dict[int, bytes] = {}
        self.tasks: dict[int, bytes] = {}
        self.arguments: dict[int, bytes] = {}
        self.fails = False
        self.values = {
            b"kern.bootsessionuuid": BOOT,
            b"kern.osproductversion": b"26.3",
            b"kern.osversion": b"25D125",
        }

    def sysctlbyname(self, name: bytes, answer: Any, size: Any, _new: None, _length: int) -> int:
        found = self.values.get(name)
        if self.fails or found is None:
            return -1
        ctypes.memmove(answer, found + b"\0", len(found) + 1)
        size._obj.value = len(found) + 1
        return 0

    def gethostuuid(self, answer: Any, wait: Any) -> int:
        assert list(wait) == [0, 0]
        if self.fails:
            return -1
        ctypes.memmove(answer, UUID.bytes, 16)
        return 0

    def proc_listallpids(self, answer: Any, _size: int) -> int:
        if self.fails:
            return -1
        pids = [0, *self.bsd]
        for index, pid in enumerate(pids):
            answer[index] = pid
        return len(pids)

    def proc_pidinfo(self, pid: int, flavour: int, _arg: Any, answer: Any, size: int) -> int:
        found = {3: self.bsd, 4: self.tasks}[flavour].get(pid, b"")
        assert len(found) in (0, size)
        ctypes.memmove(answer, found, len(found))
        return len(found)

    def sysctl(self, question: Any, _length: int, answer: Any, size: Any, *_: object) -> int:
        assert list(question)[:2] == [1, 49]
        found = self.arguments.get(question[2])
        if found is None:
            return -1
        ctypes.memmove(answer, found, len(found))
        size._obj.value = len(found)
        return 0

    def mach_timebase_info(self, answer: Any) -> int:
        answer[0], answer[1] = 125, 3
        return 0


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def host(library: Library) -> DarwinHost:
    host = DarwinHost()
    host._library = library  # type: ignore[assignment]
    return host


def a_task(resident: int, ticks: int) -> bytes:
    return struct.pack("<6Q12i", 0, resident, ticks, 0, 0, 0, *[0] * 12)


def some_arguments(*words: str, more: bytes = b"") -> bytes:
    arguments = b"".join(word.encode() + b"\0" for word in words)
    variables = b"PATH=/bin\0HOME=/Users/m1\0" + more
    apple = b"\0ptr_munge=\0main_stack=\0"
    return struct.pack("<i", len(words)) + b"/path/to/program\0\0\0" + arguments + variables + apple


def test_boot_id_is_read_from_the_system(host: DarwinHost) -> None:
    assert host.boot_id() == BOOT.decode()


def test_system_is_named_by_version_build_and_hardware(host: DarwinHost, library: Library) -> None:
    assert host.system_info() == SystemInfo(
        os_image="macOS 26.3 (25D125)",
        kernel_version=os.uname().release,
        machine_id="564d1a2b00004000800000000000cafe",
        system_uuid="564D1A2B-0000-4000-8000-00000000CAFE",
    )
    del library.values[b"kern.osversion"]
    assert host.system_info().os_image == "macOS 26.3"


def test_system_that_does_not_answer_leaves_its_fields_empty(
    host: DarwinHost, library: Library
) -> None:
    library.fails = True

    assert host.system_info() == SystemInfo(kernel_version=os.uname().release)


def test_system_that_does_not_answer_is_an_error(host: DarwinHost, library: Library) -> None:
    library.fails = True

    with pytest.raises(OSError, match="boot"):
        host.boot_id()
    with pytest.raises(OSError, match="list of processes"):
        host.processes()


def test_only_processes_that_run_a_vm_are_guests(host: DarwinHost, library: Library) -> None:
    library.bsd = {pid: a_bsd_info() for pid in (10, 11, 12, 13)}
    library.arguments = {
        10: some_arguments("/usr/local/bin/tart", "run", "vm"),
        11: some_arguments("/x/com.apple.Virtualization.VirtualMachine"),
        12: some_arguments("/usr/local/bin/tart", "list"),
    }

    assert [each.pid for each in host.guest_processes()] == [10, 11]
    assert [each.tart_home for each in host.guest_processes()] == ["/Users/m1/.tart"] * 2
    assert [each.pid for each in host.processes()] == [10, 11, 12]


def test_folder_of_a_tart_is_read_from_its_environment(host: DarwinHost, library: Library) -> None:
    run = ("/opt/homebrew/bin/tart", "run", "vm")
    library.bsd = {pid: a_bsd_info() for pid in (10, 11)}
    library.arguments = {
        10: some_arguments(*run, more=b"TART_HOME=/Volumes/a b\0"),
        # The environment of a restricted program is hidden.
        11: some_arguments(*run).partition(b"PATH=")[0],
    }

    assert [each.tart_home for each in host.guest_processes()] == ["/Volumes/a b", ""]


def test_usage_of_a_process_includes_its_descendants(host: DarwinHost, library: Library) -> None:
    library.bsd = {10: a_bsd_info(), 11: a_bsd_info(parent=10), 12: a_bsd_info(parent=1)}
    library.tasks = {10: a_task(100, 24_000_000), 11: a_task(20, 24_000_000), 12: a_task(3, 1)}

    usage = host.usage(10)

    assert usage is not None
    assert (usage.cpu, usage.resident_bytes) == (timedelta(seconds=2), 120)
    assert host.usage(99) is None


def test_ancestors_end_at_a_process_that_does_not_exist_and_at_a_cycle(
    host: DarwinHost, library: Library
) -> None:
    library.bsd = {
        10: a_bsd_info(parent=11),
        11: a_bsd_info(parent=1),
        12: a_bsd_info(parent=13),
        13: a_bsd_info(parent=12),
    }

    assert host.ancestors(10) == [10, 11]
    assert host.ancestors(12) == [12, 13]
    assert host.ancestors(99) == []


def test_flock_on_a_vm_counts_as_running_without_a_process(
    host: DarwinHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XNU reports an flock as a lock of the process -1."""
    answer = struct.pack("<qqihh", 0, 0, -1, 3, 0)
    monkeypatch.setattr("fcntl.fcntl", lambda *_: answer)
    config = tmp_path / "vms" / "vm" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    tart = Tart(cast("Any", None), binary="tart", home=tmp_path, metrics=cast("Any", None))

    assert host.lock_holder(config) is None
    assert host.is_locked(config)
    assert tart.is_running("vm", host)


def test_process_differs_from_a_later_one_with_the_same_pid(
    host: DarwinHost, library: Library
) -> None:
    library.bsd = {10: a_bsd_info(start=1_794_801_293), 11: a_bsd_info(status=5)}

    assert host.start_time(10) == "Mon Nov 16 03:54:53 2026"
    assert host.is_same_process(10, "Mon Nov 16 03:54:53 2026")
    assert host.is_same_process(10, "Mon Nov 16 03:54:52 2026")
    assert not host.is_same_process(10, "Mon Nov 16 03:50:00 2026")
    assert not host.is_same_process(11, "Mon Nov 16 03:54:53 2026")
    assert not host.is_same_process(12, "")


def test_living_process_with_an_unreadable_start_time_counts_as_the_same(
    host: DarwinHost, library: Library
) -> None:
    library.bsd = {10: a_bsd_info()}

    assert host.is_same_process(10, "Mo 16 Nov")
