"""Guests, and commands that run in them (rows 11 and 12)."""

from __future__ import annotations

import asyncio
import json

from tests.contract.tart.guest_scripts import guest, reported, run, shares
from tests.contract.tart.targets import (
    IMAGE,
    SMALL,
    TIMEOUT_SECONDS,
    VIRTUAL,
    Started,
    Tart,
    both,
    on,
)


@both
async def test_guest_works_reports_and_halts(tart: Tart) -> None:
    guest(tart, lines=["hello from {HOSTNAME}", "bye"], code=3)
    await tart.a_vm()

    code, out, _ = await run(tart, *shares(tart))

    assert (code, out) == (0, "guest has stopped the virtual machine\n")
    assert reported(tart, "runner-rc") == "3\n"
    assert reported(tart, "runner.log") == "hello from one\nbye\n"


@both
async def test_pod_s_environment_changes_the_script(tart: Tart) -> None:
    guest(tart)
    await tart.a_vm()
    words = shares(tart)
    env = tart.home.parent / "shares/env/tuist.env"
    env.write_text(
        'BRAMLEY_SIM_CODE=7\nBRAMLEY_SIM_LINES=["{GREETING}"]\nGREETING=a\\nb\\\\n=c\nEMPTY=\n'
    )

    await run(tart, *words)

    assert reported(tart, "runner-rc") == "7\n"
    assert reported(tart, "runner.log") == "a\nb\\n=c\n"


async def booted(tart: Tart) -> Started:
    await tart.a_vm()
    started = await tart.running("one", *shares(tart))
    # tart waits ten seconds for the agent of a guest, which a busy machine may need longer to start.
    end = tart.driver.now() + TIMEOUT_SECONDS
    while (await tart("exec", "one", "true")).code != 0:
        assert tart.driver.now() < end, "its agent never answered"
    return started


@both
async def test_agent_of_a_guest_runs_commands(tart: Tart) -> None:
    guest(tart, then="stay", disk_percent=93, commands={"whoami": {"stdout": "admin\n"}})
    await booted(tart)

    stdout = await tart.done("exec", "one", "/bin/df", "-k", "/")
    odd = await tart("exec", "one", "nonsense")

    assert stdout.splitlines()[1].split()[4] == "93%"
    assert (await tart("exec", "one", "sh", "-c", "exit 5")).code == 5
    assert (odd.code, odd.stdout, odd.stderr) == (127, "", "nonsense: command not found\n")
    assert await tart.done("exec", "one", "whoami") == "admin\n"
    assert await tart.done("exec", "-i", "one", "cat", stdin=b"in\n") == "in\n"


@both
async def test_guest_shuts_down_on_request(tart: Tart) -> None:
    guest(tart, work=10_000)
    started = await booted(tart)
    await tart.until(lambda: (tart.home.parent / "shares/status/runner.log").exists())

    await tart.done("exec", "one", "sudo", "shutdown", "-h", "now")

    assert (await started.end()).stdout == "guest has stopped the virtual machine\n"
    assert reported(tart, "runner-rc") == "143\n"


@on(VIRTUAL)
async def test_guest_may_ignore_a_shutdown(tart: Tart) -> None:
    guest(tart, then="stay", ignores_shutdown=True)
    await booted(tart)

    await tart.done("exec", "one", "shutdown", "-h", "now")
    await asyncio.sleep(600)

    assert tart.driver.guests()


@both
async def test_no_command_runs_in_a_stopped_vm(tart: Tart) -> None:
    await tart.a_vm()

    ended = await tart("exec", "one", "true")

    assert (ended.code, "is not running" in ended.stderr) == (2, True)


@on(VIRTUAL)
async def test_agent_that_does_not_answer_times_out_after_ten_seconds(tart: Tart) -> None:
    guest(tart, then="stay", has_agent=False)
    await tart.a_vm()
    await tart.running("one")
    began = tart.driver.now()

    ended = await tart("exec", "one", "true")

    assert ended.code == 1
    assert 10 <= tart.driver.now() - began < 11


@on(VIRTUAL)
async def test_guest_agent_may_stop_answering_while_the_guest_works(tart: Tart) -> None:
    guest(tart, work=100, falls_silent=20, silent_for=60, code=5)
    started = await booted(tart)
    await asyncio.sleep(20)

    assert (await tart("exec", "one", "true")).code == 1
    await asyncio.sleep(60)
    assert (await tart("exec", "one", "true")).code == 0
    await started.end()
    assert reported(tart, "runner-rc") == "5\n"


@on(VIRTUAL)
async def test_booting_takes_as_long_as_on_real_macs(tart: Tart) -> None:
    tart.configure(images={IMAGE: SMALL})
    await tart.a_vm()
    began = tart.driver.now()

    await tart.running("one", *shares(tart))
    await tart.done("ip", "one", "--wait", "60")
    addressed = tart.driver.now()
    await tart.until(lambda: (tart.home.parent / "shares/status/runner.log").exists(), 60)

    assert 9 <= addressed - began <= 12
    assert 32 <= tart.driver.now() - began <= 34


@on(VIRTUAL)
async def test_script_may_slow_the_boot(tart: Tart) -> None:
    tart.configure(guests={"one": {"address": 300}})
    await tart.a_vm()
    await tart.running("one")

    assert (await tart("ip", "one", "--wait", "250")).code == 1
    await tart.done("ip", "one", "--wait", "60")


@on(VIRTUAL)
async def test_writes_of_a_guest_use_disk_space(tart: Tart) -> None:
    guest(tart, writes_bytes=3_000_000_000)
    await tart.a_vm()

    await run(tart)

    assert json.loads(await tart.done("get", "one", "--format", "json"))["Size"] == "4.000"


@on(VIRTUAL)
async def test_hostile_guest_leaves_links_and_pipes(tart: Tart) -> None:
    plants = {"runner.log": "link:/etc/passwd", "pipe": "fifo", "big": "bytes:9", "d": "folder"}
    guest(tart, plants=plants)
    await tart.a_vm()

    await run(tart, *shares(tart))

    status = tart.home.parent / "shares/status"
    assert (status / "runner.log").is_symlink()
    assert (status / "pipe").is_fifo()
    assert (status / "big").read_bytes() == b"x" * 9
    assert (status / "d").is_dir()


@on(VIRTUAL)
async def test_disk_counts_its_boots(tart: Tart) -> None:
    guest(tart)
    bundle = await tart.a_vm()

    await run(tart)

    with (bundle / "disk.img").open("rb") as file:
        assert json.loads(file.readline())["boots"] == 1
