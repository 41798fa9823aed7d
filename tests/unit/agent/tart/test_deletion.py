"""Deletions: by tart where it finds the VM, and by a rename and a program where it does not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path

import pytest

from bramley.agent.programs import ProgramResult
from bramley.agent.tart import failures
from bramley.api.names import agent
from bramley.base import errors
from tests.unit.agent.tart.fakes import Hung, Programs, a_tart, a_vm_on_disk

MISSING = ProgramResult(2, stderr='the specified VM "vm" does not exist\n')
DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    "finished",
    [
        MISSING,
        ProgramResult(1, stderr="VM is missing some of its files (config.json)\n"),
        ProgramResult(1, stderr="missing files for a supported layout\n"),
    ],
)
async def test_incomplete_vm_that_tart_does_not_list_is_removed(
    tmp_path: Path, finished: ProgramResult
) -> None:
    folder = a_vm_on_disk(tmp_path, "vm", "disk.img")

    await a_tart(tmp_path, Programs(delete=finished)).delete("vm")

    assert not folder.exists()


async def test_incomplete_vm_is_only_renamed_by_the_agent_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlinking a large disk in the agent's own process would block its Lease."""
    a_vm_on_disk(tmp_path, "vm", "disk.img")
    programs = Programs(delete=MISSING)
    tart = a_tart(tmp_path, programs)
    for function in ("unlink", "remove", "rmdir"):
        monkeypatch.setattr(os, function, lambda *_, **__: pytest.fail("blocks the event loop"))

    await tart.delete("vm")
    await tart.removals.finish()

    (removed,) = (tmp_path / agent.REMOVED_FOLDER).iterdir()
    assert list((tmp_path / "vms").iterdir()) == []
    assert programs.calls[1:] == [("/bin/rm", "-rf", str(removed))]


async def test_deletion_that_was_killed_halfway_is_finished(tmp_path: Path) -> None:
    folder = a_vm_on_disk(tmp_path, "vm", "disk.img", "nvram.bin")

    await a_tart(tmp_path, Programs(delete=Hung())).delete("vm")

    assert not folder.exists()
    assert asyncio.get_running_loop().time() == pytest.approx(300)


async def test_deletion_that_hangs_from_its_start_fails(tmp_path: Path) -> None:
    folder = a_vm_on_disk(tmp_path, "vm")

    with pytest.raises(errors.TimedOut):
        await a_tart(tmp_path, Programs(delete=Hung())).delete("vm")

    assert folder.exists()


async def test_removal_that_was_interrupted_is_repeated_by_the_next_agent(tmp_path: Path) -> None:
    a_vm_on_disk(tmp_path, "vm", "disk.img")
    hanging = Programs(delete=MISSING, **{"-rf": Hung()})
    tart = a_tart(tmp_path, hanging)
    await tart.delete("vm")
    await cancelled_after(1, tart.removals.run())
    (left,) = (tmp_path / agent.REMOVED_FOLDER).iterdir()

    programs = Programs()
    await cancelled_after(1, a_tart(tmp_path, programs).removals.run())

    assert len(hanging.killed) == 1
    assert programs.calls == [("/bin/rm", "-rf", str(left))]


async def test_folder_is_not_removed_twice_at_the_same_time(tmp_path: Path) -> None:
    a_vm_on_disk(tmp_path, "vm", "disk.img")
    programs = Programs(delete=MISSING, **{"-rf": Hung()})
    tart = a_tart(tmp_path, programs)
    await tart.delete("vm")

    await cancelled_after(60, asyncio.gather(tart.removals.run(), tart.removals.finish()))

    assert len([call for call in programs.calls if call[1] == "-rf"]) == 1


async def test_folder_that_cannot_be_renamed_is_removed_where_it_is(tmp_path: Path) -> None:
    """A full disk may refuse a new folder, and that is when deletions are needed most."""
    folder = a_vm_on_disk(tmp_path, "vm", "disk.img")
    (tmp_path / agent.REMOVED_FOLDER).write_text("in the way")
    programs = Programs(delete=MISSING)
    tart = a_tart(tmp_path, programs)

    await tart.delete("vm")
    await tart.removals.finish()

    assert programs.calls[1:] == [("/bin/rm", "-rf", str(folder))]


async def test_vm_that_was_made_meanwhile_is_not_removed(tmp_path: Path) -> None:
    folder = a_vm_on_disk(tmp_path, "vm", "disk.img")
    (tmp_path / agent.REMOVED_FOLDER).write_text("in the way")
    programs = Programs(delete=MISSING)
    tart = a_tart(tmp_path, programs)
    await tart.delete("vm")
    for file in ("config.json", "nvram.bin"):
        (folder / file).write_text("{}")

    await tart.removals.finish()

    assert len(programs.calls) == 1


async def test_link_of_the_removed_folder_is_not_followed(tmp_path: Path) -> None:
    home, outside = tmp_path / "tart", tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    folder = a_vm_on_disk(home, "vm", "disk.img")
    (home / agent.REMOVED_FOLDER).symlink_to(outside)
    programs = Programs(delete=MISSING)
    tart = a_tart(home, programs)

    await tart.delete("vm")
    await tart.removals.finish()

    assert programs.calls[1:] == [("/bin/rm", "-rf", str(folder))]
    assert [each.name for each in outside.iterdir()] == ["kept"]


@pytest.mark.parametrize("is_renamed", [True, False])
async def test_removal_that_fails_is_tried_again(tmp_path: Path, *, is_renamed: bool) -> None:
    a_vm_on_disk(tmp_path, "vm", "disk.img")
    if not is_renamed:
        (tmp_path / agent.REMOVED_FOLDER).write_text("in the way")
    programs = Programs(delete=MISSING, **{"-rf": ProgramResult(1, stderr="in use")})
    tart = a_tart(tmp_path, programs)
    await tart.delete("vm")

    await cancelled_after(3600, tart.removals.run())

    assert 3 < len(programs.calls) < 10


async def cancelled_after(seconds: float, work: Awaitable[object]) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait([task])


async def test_complete_vm_is_removed_only_by_tart(tmp_path: Path) -> None:
    folder = a_vm_on_disk(tmp_path, "vm")

    await a_tart(tmp_path, Programs(delete=MISSING)).delete("vm")

    assert folder.exists()


async def test_deleting_an_image_that_is_gone_touches_no_vm(tmp_path: Path) -> None:
    folder = a_vm_on_disk(tmp_path, "image", "disk.img")

    await a_tart(tmp_path, Programs(delete=MISSING)).delete("registry/image@" + DIGEST)

    assert folder.exists()


async def test_running_vm_is_not_deleted(tmp_path: Path) -> None:
    finished = ProgramResult(1, stderr='VM "vm" is running\n')

    with pytest.raises(failures.IsRunning):
        await a_tart(tmp_path, Programs(delete=finished)).delete("vm")
