from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent import platform
from bramley.agent.platform import linux, system
from bramley.agent.platform.linux import LinuxHost
from bramley.sim.mac.folder import OS_IMAGE, MacFolder

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads this machine's /proc")
STAT = "4242 (a (tricky) name) S 17 4242 4242 0 -1 4194560 100 0 0 0 5 7 11 13 20 0 1 0 987654 1000 250 18446744073709551615"
LOCKING = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "config.json"
    path.write_text("{}")
    with subprocess.Popen(
        [sys.executable, "-c", LOCKING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield path, holder.pid


def test_holder_of_a_lock_is_found_without_taking_the_lock(locked: tuple[Path, int]) -> None:
    path, holder = locked
    host = platform.current()

    assert [host.lock_holder(path) for _ in range(2)] == [holder, holder]


def test_free_or_missing_file_has_no_holder(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    host = platform.current()

    assert host.lock_holder(path) is None
    assert host.lock_holder(tmp_path / "none") is None


def test_flock_has_no_holder_and_counts_as_a_lock_where_the_system_reports_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    host = platform.current()
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        assert host.lock_holder(path) is None
        assert host.is_locked(path) == (sys.platform == "darwin")


@needs_linux
def test_lock_of_an_open_file_keeps_tart_out_and_has_no_holder(tmp_path: Path) -> None:
    """The kernel reports it with the pid -1, as macOS does an flock."""
    path = tmp_path / "config.json"
    path.write_text("{}")
    set_lock_of_open_file = 37
    with path.open("r+") as file:
        fcntl.fcntl(
            file, set_lock_of_open_file, struct.pack("=hh4xqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        )
        host = platform.current()

        assert host.lock_holder(path) is None
        assert host.is_locked(path)
    assert not host.is_locked(path)


@needs_linux
def test_simulated_mac_shows_the_system_that_it_simulates(tmp_path: Path) -> None:
    mac = MacFolder(tmp_path / "mac")
    mac.lay_out({})

    simulated = LinuxHost(tart_home=mac.folders.tart_home).system_info()
    real = LinuxHost(tart_home=tmp_path).system_info()

    assert simulated.os_image == OS_IMAGE
    assert real.os_image not in {"", OS_IMAGE}


@needs_linux
def test_machine_id_is_also_the_uuid_of_the_system(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    file.write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
    known = LinuxHost(machine_id_file=file).system_info()
    unknown = LinuxHost(machine_id_file=tmp_path / "none").system_info()
    file.write_text("uninitialized\n")
    invalid = LinuxHost(machine_id_file=file).system_info()

    assert known.machine_id == "3d1219c7c4c5404aaa1f6d2a48adfda4"
    assert known.system_uuid == "3D1219C7-C4C5-404A-AA1F-6D2A48ADFDA4"
    assert known.kernel_version == os.uname().release
    assert (unknown.machine_id, unknown.system_uuid) == ("", "")
    assert (invalid.machine_id, invalid.system_uuid) == ("", "")


@needs_linux
def test_ancestors_are_those_of_ps(locked: tuple[Path, int]) -> None:
    _, child = locked
    host = LinuxHost()

    assert host.ancestors(child)[:2] == [child, os.getpid()]
    assert host.ancestors(os.getpid()) == host.ancestors(child)[1:]
    assert host.ancestors(2**22 + 1) == []


def test_disk_space_of_a_missing_folder_is_that_of_its_parent(tmp_path: Path) -> None:
    room = platform.current().space(tmp_path / "not/yet")

    assert 0 < room.free <= room.total
    assert room.total == platform.current().space(tmp_path).total


def test_boot_has_one_id() -> None:
    assert platform.current().boot_id() == platform.current().boot_id() != ""


def test_own_process_is_listed_with_its_usage() -> None:
    host = platform.current()

    assert os.getpid() in {each.pid for each in host.processes()}
    usage = host.usage(os.getpid())
    assert usage is not None
    assert usage.resident_bytes > 1_000_000
    assert usage.cpu > timedelta(0)


@needs_linux
def test_process_is_identified_by_pid_and_start_time() -> None:
    host = platform.current()
    began = host.start_time(os.getpid())

    assert began is not None
    assert host.is_same_process(os.getpid(), began)
    assert not host.is_same_process(os.getpid(), "1")


@needs_linux
def test_process_that_waits_to_be_reaped_has_ended() -> None:
    host = platform.current()
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert host.start_time(child.pid) is None
    assert not host.is_same_process(child.pid, "")
    child.wait()


def test_process_with_an_odd_name_is_parsed() -> None:
    stat = linux.parse_stat(STAT)

    assert (stat.state, stat.parent, stat.start_ticks) == ("S", 17, "987654")
    assert (stat.cpu_ticks, stat.resident_pages) == (5 + 7 + 11 + 13, 250)


def test_arguments_may_be_empty() -> None:
    assert linux.split_arguments(b"tart\0run\0\0") == ("tart", "run", "")
    assert linux.split_arguments(b"") == ()


def test_descendants_are_found_at_any_depth() -> None:
    parents = {2: 1, 3: 1, 4: 3, 5: 4, 6: 2, 9: 8}

    assert sorted(system.descendants(3, parents)) == [3, 4, 5]
    assert system.descendants(7, parents) == [7]


def a_process(proc: Path, pid: int, argv: list[str], home: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    (folder / "environ").write_bytes(f"A=b\0TART_HOME={home}\0".encode())


def test_vms_of_other_simulated_macs_are_not_ours(tmp_path: Path) -> None:
    a_process(tmp_path, 10, ["tart", "run", "mine"], "/one")
    a_process(tmp_path, 11, ["tart", "run", "theirs"], "/two")
    a_process(tmp_path, 12, ["tart", "list"], "/one")
    (tmp_path / "10" / "stat").touch()
    (tmp_path / "self").mkdir()

    ours = LinuxHost(proc=tmp_path, tart_home=Path("/one")).guest_processes()
    everybody = LinuxHost(proc=tmp_path).guest_processes()

    assert [each.pid for each in ours] == [10]
    assert sorted(each.pid for each in everybody) == [10, 11]


@needs_linux
def test_missing_process_is_an_error() -> None:
    host = LinuxHost()

    assert host.usage(2**22 + 1) is None
    assert host.start_time(2**22 + 1) is None
    assert not host.is_same_process(2**22 + 1, "")
