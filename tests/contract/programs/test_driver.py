"""The tart driver on the simulated tart: its output is parsed, and its effects are observed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.tart import failures
from bramley.agent.tart.output import VmFacts
from bramley.base import errors
from tests.contract.programs import macs
from tests.contract.programs.macs import IMAGE, Mac
from tests.contract.programs.targets import TIMEOUT_SECONDS, until

TIMEOUT = timedelta(seconds=TIMEOUT_SECONDS)
VM = "ns-pod-0123456789ab"


async def a_running_vm(mac: Mac, vm: str = VM) -> None:
    await mac.tart.clone(IMAGE, vm)
    await mac.tart.start(mac.runs, vm)
    await until(lambda: mac.tart.is_running(vm, mac.host))


@pytest.fixture
def mac(target: str, tmp_path: Path) -> AbstractAsyncContextManager[Mac]:
    return macs.on(target, tmp_path)


async def test_pulled_image_is_resolved_to_its_digest(mac: Mac) -> None:
    assert mac.tart.resolve(IMAGE) is None
    lines: list[str] = []

    await mac.tart.pull(IMAGE, on_line=lines.append)

    digest = mac.tart.resolve(IMAGE)
    assert digest is not None
    assert mac.tart.resolve(f"ghcr.io/tuist/runner@{digest}") == digest
    assert "100%" in [line.strip() for line in lines]
    names = {each.name for each in await mac.tart.list() if not each.is_local}
    assert names == {IMAGE, f"ghcr.io/tuist/runner@{digest}"}


async def test_clone_is_resized_and_deleting_it_twice_is_no_error(mac: Mac) -> None:
    assert await mac.tart.get(VM) is None

    await mac.tart.clone(IMAGE, VM)
    await mac.tart.set(VM, cpu=6, memory_mb=12288, random_mac=True, random_serial=True)

    assert mac.tart.has_vm(VM)
    assert await mac.tart.get(VM) == VmFacts(cpu=6, memory_mb=12288, disk_gb=5)
    with pytest.raises(errors.AlreadyExists):
        await mac.tart.clone(IMAGE, VM)
    for _ in range(2):
        await mac.tart.delete(VM)
        assert not mac.tart.has_vm(VM)


async def test_vm_runs_under_its_supervisor_until_it_is_stopped(mac: Mac) -> None:
    await a_running_vm(mac)

    assert await mac.tart.ip(VM, TIMEOUT) is not None
    assert any(VM in each.argv for each in mac.host.guest_processes())
    assert (await mac.tart.exec(VM, ["/bin/df", "-k", "/"], TIMEOUT)).code == 0
    with pytest.raises(failures.IsRunning):
        await mac.tart.delete(VM)

    await mac.tart.stop(VM, TIMEOUT)

    assert (await asyncio.wait_for(mac.runs.wait(VM), timeout=TIMEOUT_SECONDS)).code == 0
    assert not mac.tart.is_running(VM, mac.host)
    await mac.tart.stop(VM, timedelta(seconds=1))
    await mac.tart.delete(VM)
    await until(lambda: mac.host.guest_processes() == [])


async def test_killed_run_frees_its_vm(mac: Mac) -> None:
    await a_running_vm(mac)

    mac.runs.kill(VM)

    assert (await asyncio.wait_for(mac.runs.wait(VM), timeout=TIMEOUT_SECONDS)).code == -9
    assert not mac.tart.is_running(VM, mac.host)
    await mac.tart.delete(VM)


async def test_third_vm_fails_with_limit_reached(mac: Mac) -> None:
    for vm in ("one", "two"):
        await a_running_vm(mac, vm)
    await mac.tart.clone(IMAGE, "three")

    await mac.tart.start(mac.runs, "three")
    ended = await asyncio.wait_for(mac.runs.wait("three"), timeout=TIMEOUT_SECONDS)

    assert ended.code == 1
    why = failures.start_failure(ended.code, mac.runs.output_tail("three"))
    assert isinstance(why, failures.LimitReached)


async def test_run_ends_with_its_guest(mac: Mac) -> None:
    mac.settings.guest(VM, then="halt", code=0)
    await mac.tart.clone(IMAGE, VM)
    await mac.tart.start(mac.runs, VM)

    assert (await asyncio.wait_for(mac.runs.wait(VM), timeout=TIMEOUT_SECONDS)).code == 0
    assert "guest has stopped the virtual machine" in mac.runs.output_tail(VM)


@pytest.mark.parametrize(
    ("fault", "kind"), [("no_session", failures.NoSession), ("limit", failures.LimitReached)]
)
async def test_failed_start_is_classified_by_its_output(
    mac: Mac, fault: str, kind: type[failures.TartFailed]
) -> None:
    mac.settings.fault("run", fault)
    await mac.tart.clone(IMAGE, VM)
    await mac.tart.start(mac.runs, VM)

    ended = await asyncio.wait_for(mac.runs.wait(VM), timeout=TIMEOUT_SECONDS)

    assert ended.code is not None
    assert isinstance(failures.start_failure(ended.code, mac.runs.output_tail(VM)), kind)


async def test_full_disk_is_classified_as_no_space(mac: Mac) -> None:
    await mac.tart.clone(IMAGE, "golden")
    mac.settings.fault("clone", "no_space")
    mac.settings.fault("pull", "no_space")

    with pytest.raises(failures.NoSpace):
        await mac.tart.clone("golden", VM)
    mac.settings.image("ghcr.io/tuist/other:1", size_bytes=1_000_000_000)
    with pytest.raises(failures.NoSpace):
        await mac.tart.pull("ghcr.io/tuist/other:1")


async def test_status_429_is_classified_as_throttled(mac: Mac) -> None:
    mac.settings.fault("pull", "status", code=429)

    with pytest.raises(failures.Throttled):
        await mac.tart.pull(IMAGE)


async def test_incomplete_clone_is_deleted(mac: Mac) -> None:
    folder = mac.tart.home / "vms" / VM
    folder.mkdir(parents=True)
    (folder / "disk.img").write_bytes(b"")
    assert VM not in {each.name for each in await mac.tart.list()}

    await mac.tart.delete(VM)

    assert not folder.exists()


@pytest.mark.parametrize("operation", ["list", "get", "clone", "delete", "pull"])
async def test_command_that_hangs_is_killed_and_counted(mac: Mac, operation: str) -> None:
    mac.settings.fault(operation, "hang")
    tart = macs.with_short_deadlines(mac, 0.3)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "list": tart.list,
        "get": lambda: tart.get(VM),
        "clone": lambda: tart.clone(IMAGE, VM),
        "delete": lambda: tart.delete(VM),
        "pull": lambda: tart.pull(IMAGE),
    }

    async with asyncio.timeout(TIMEOUT_SECONDS):
        with pytest.raises(errors.TimedOut):
            await calls[operation]()

    assert mac.metrics.timeouts(operation) == 1
    home = str(mac.tart.home)
    await until(lambda: not [each for each in mac.host.processes() if _is_tart(each.argv, home)])


def _is_tart(argv: tuple[str, ...], home: str) -> bool:
    inside = home.removesuffix("/tart")
    return any(word.startswith(inside) and word.endswith("/bin/tart") for word in argv)
