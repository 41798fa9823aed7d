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
