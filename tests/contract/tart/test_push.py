"""`tart push`, and the lock that it loses (row 4)."""

from __future__ import annotations

import json

from tests.contract.tart.targets import VIRTUAL, Started, Tart, both, on

TARGET = "ghcr.io/tuist/baked:1"
SLOW = {"push_bytes_per_second": 2e6}


async def pushing(tart: Tart) -> Started:
    """Start a slow push and return once the disk is on its way."""
    tart.configure(timings=SLOW)
    push = await tart.start("push", "one", TARGET, env={"CI": "1"})
    await tart.until(lambda: "0%" in push.lines())
    return push


@both
async def test_pushed_vm_can_be_pulled_elsewhere(tart: Tart) -> None:
    await tart.a_vm()
    await tart.done("set", "one", "--cpu", "6")

    stdout = await tart.done("push", "one", TARGET, "ghcr.io/tuist/baked:latest")
    await tart.done("clone", TARGET, "two")

    pushed = [line for line in stdout.splitlines() if line.startswith("pushing")]
    assert pushed == [
        "pushing config...",
        "pushing disk... this will take a while...",
        "pushing NVRAM...",
        f"pushing manifest for {TARGET}...",
        "pushing manifest for ghcr.io/tuist/baked:latest...",
    ]
    assert json.loads((tart.vm("two") / "config.json").read_text())["cpuCount"] == 6


@both
async def test_vm_being_pushed_counts_as_stopped_and_can_be_deleted(tart: Tart) -> None:
    """How a collector killed a bake: the push fails at the very end, for want of nvram.bin."""
    await tart.a_vm()
    push = await pushing(tart)
    with tart.stopped(push):
        assert tart.driver.holder("one") is None

        await tart.done("delete", "one")
    ended = await push.end()

    assert (ended.code, "file “nvram.bin” doesn’t exist" in ended.stderr) == (1, True)  # noqa: RUF001


@both
async def test_running_vm_is_not_pushed(tart: Tart) -> None:
    await tart.a_vm()
    await tart.running("one")

    pushed = await tart("push", "one", TARGET)

    assert (pushed.code, '" is running' in pushed.stderr) == (1, True)


@on(VIRTUAL)
async def test_cached_image_gets_further_names_without_its_disk(tart: Tart) -> None:
    await tart.a_vm()
    await tart.done("push", "one", TARGET, "--populate-cache")

    stdout = await tart.done("push", TARGET, "ghcr.io/tuist/baked:2")

    assert "pushing disk" not in stdout
    await tart.done("pull", "ghcr.io/tuist/baked:2")


@on(VIRTUAL)
async def test_registry_may_refuse_a_push(tart: Tart) -> None:
    await tart.a_vm()
    tart.fault("push", "status", code=500, percent=70)

    pushed = await tart("push", "one", TARGET)

    assert (pushed.code, "code: 500" in pushed.stderr) == (1, True)


@on(VIRTUAL)
async def test_push_takes_long_with_one_stream(tart: Tart) -> None:
    """58 GB took 55 minutes with one stream and 7 with eight."""
    tart.configure(images={"ghcr.io/tuist/big:1": {"size_bytes": 116_000_000_000}})
    await tart.a_vm(image="ghcr.io/tuist/big:1")
    began = tart.driver.now()

    await tart.done("push", "one", TARGET, "--concurrency", "1")
    one = tart.driver.now()
    await tart.done("push", "one", "docker.io/tuist/baked:1", "--concurrency", "8")

    assert 50 <= (one - began) / 60 <= 60
    assert 6 <= (tart.driver.now() - one) / 60 <= 8
