"""Faults of any command: slow, hanging or failing, before its work or after it."""

from __future__ import annotations

import asyncio
import signal

from tests.contract.tart.targets import IMAGE, VIRTUAL, Tart, both, on


@both
async def test_command_may_hang(tart: Tart) -> None:
    tart.fault("list", "hang")
    call = await tart.start("list")

    await asyncio.sleep(0.3)
    call.send(signal.SIGKILL)

    assert (await call.end()).code == -signal.SIGKILL


@both
async def test_command_may_hang_after_it_did_its_work(tart: Tart) -> None:
    """What a driver killed for its deadline may have been done all the same."""
    tart.fault("clone", "hang", at="end")
    call = await tart.start("clone", IMAGE, "one")

    await tart.until(lambda: (tart.vm("one") / "nvram.bin").exists())

    call.send(signal.SIGKILL)


@both
async def test_hung_command_can_be_interrupted(tart: Tart) -> None:
    tart.fault("delete", "hang")
    call = await tart.start("delete", "one")
    await tart.until(call.catches_signals)
    await asyncio.sleep(0.2)

    call.send(signal.SIGINT)

    assert (await call.end()).code == 1


@on(VIRTUAL)
async def test_command_may_be_slow(tart: Tart) -> None:
    tart.fault("get", "slow", seconds=40, target="one")
    await tart.a_vm()
    began = tart.driver.now()

    await tart.done("get", "one")

    assert 40 <= tart.driver.now() - began < 41


@both
async def test_fault_applies_at_most_times(tart: Tart) -> None:
    tart.fault("list", "fail", code=9, stderr="no", times=2)

    codes = [(await tart("list")).code for _ in range(3)]

    assert codes == [9, 9, 0]


@both
async def test_fault_applies_only_to_its_target(tart: Tart) -> None:
    tart.fault("clone", "fail", target="bad-*")
    await tart.done("pull", IMAGE)

    assert (await tart("clone", IMAGE, "bad-one")).code == 1
    await tart.done("clone", IMAGE, "one")


@both
async def test_set_may_find_no_space(tart: Tart) -> None:
    await tart.a_vm()
    tart.fault("set", "no_space")

    ended = await tart("set", "one", "--cpu", "4")

    assert (ended.code, "No space left on device" in ended.stderr) == (1, True)


@both
async def test_unknown_fault_is_refused(tart: Tart) -> None:
    tart.fault("list", "explode")

    ended = await tart("list")

    assert (ended.code, "cannot explode" in ended.stderr) == (78, True)


@both
async def test_clone_that_hangs_in_the_middle_blocks_every_other_clone(tart: Tart) -> None:
    """It holds the lock of TART_HOME, which only its end releases."""
    await tart.a_vm()
    tart.fault("clone", "hang", at="middle", target="two")
    hung = await tart.start("clone", "one", "two")
    await tart.until(lambda: any((tart.home / "tmp").iterdir()))
    await asyncio.sleep(0.2)
    waiting = await tart.start("clone", "one", "three")
    await asyncio.sleep(0.5)
    assert not tart.vm("three").exists()

    hung.send(signal.SIGKILL)

    assert (await waiting.end()).code == 0


@both
async def test_killed_deletion_leaves_a_folder_that_no_command_finds(tart: Tart) -> None:
    await tart.a_vm()
    tart.fault("delete", "hang", at="middle")
    hung = await tart.start("delete", "one")
    await tart.until(lambda: not (tart.vm("one") / "config.json").exists())
    hung.send(signal.SIGKILL)
    await hung.end()
    tart.remove_faults()

    assert (tart.vm("one") / "disk.img").exists()
    assert (await tart("delete", "one")).code == 2
    assert tart.vm("one").exists()


@on(VIRTUAL)
async def test_clone_fails_while_another_vm_is_changed(tart: Tart) -> None:
    """A changed configuration is written in place, and a clone reads all of them."""
    await tart.a_vm()
    tart.configure(timings={"set": 10})
    changing = await tart.start("set", "one", "--cpu", "4")
    await asyncio.sleep(9.8)

    ended = await tart("clone", IMAGE, "two")

    assert ended.code == 1
    assert "correct format" in ended.stderr
    assert (await changing.end()).code == 0
