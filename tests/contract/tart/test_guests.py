"""What guests do while they run, and what commands in them answer (rows 11 and 12)."""

from __future__ import annotations

import asyncio
import json

from tests.contract.tart.faces import IMAGE, PATIENCE, SMALL, VIRTUAL, Started, Tart, both, on
from tests.contract.tart.scripts import guest, reported, run, shares


@both
async def test_a_guest_works_reports_and_halts(tart: Tart) -> None:
    guest(tart, lines=["hello from {HOSTNAME}", "bye"], code=3)
    await tart.a_vm()

    code, out, _ = await run(tart, *shares(tart))

    assert (code, out) == (0, "guest has stopped the virtual machine\n")
    assert reported(tart, "runner-rc") == "3\n"
    assert reported(tart, "runner.log") == "hello from one\nbye\n"


@both
async def test_a_pod_s_environment_changes_the_script(tart: Tart) -> None:
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
    end = tart.face.now() + PATIENCE
    while (await tart("exec", "one", "true")).code != 0:
        assert tart.face.now() < end, "its agent never answered"
    return started


@both
async def test_the_agent_of_a_guest_runs_commands(tart: Tart) -> None:
    guest(tart, then="stay", disk_percent=93, commands={"whoami": {"stdout": "admin\n"}})
    await booted(tart)

    told = await tart.done("exec", "one", "/bin/df", "-k", "/")
    odd = await tart("exec", "one", "nonsense")

    assert told.splitlines()[1].split()[4] == "93%"
    assert (await tart("exec", "one", "sh", "-c", "exit 5")).code == 5
    assert (odd.code, odd.stdout, odd.stderr) == (127, "", "nonsense: command not found\n")
    assert await tart.done("exec", "one", "whoami") == "admin\n"
    assert await tart.done("exec", "-i", "one", "cat", stdin=b"in\n") == "in\n"


@both
async def test_a_guest_that_is_asked_to_shut_down_does(tart: Tart) -> None:
    guest(tart, work=10_000)
    started = await booted(tart)
    await tart.until(lambda: (tart.home.parent / "shares/status/runner.log").exists())

    await tart.done("exec", "one", "sudo", "shutdown", "-h", "now")

    assert (await started.end()).stdout == "guest has stopped the virtual machine\n"
    assert reported(tart, "runner-rc") == "143\n"


@on(VIRTUAL)
async def test_a_guest_may_ignore_a_shutdown(tart: Tart) -> None:
    guest(tart, then="stay", ignores_shutdown=True)
    await booted(tart)

    await tart.done("exec", "one", "shutdown", "-h", "now")
    await asyncio.sleep(600)

    assert tart.face.guests()


@both
async def test_no_command_runs_in_a_vm_that_does_not(tart: Tart) -> None:
    await tart.a_vm()

    ended = await tart("exec", "one", "true")

    assert (ended.code, "is not running" in ended.stderr) == (2, True)


@on(VIRTUAL)
async def test_an_agent_that_does_not_answer_costs_ten_seconds(tart: Tart) -> None:
    guest(tart, then="stay", has_agent=False)
    await tart.a_vm()
    await tart.running("one")
    began = tart.face.now()

    ended = await tart("exec", "one", "true")

    assert ended.code == 1
    assert 10 <= tart.face.now() - began < 11


@on(VIRTUAL)
async def test_a_guest_may_fall_silent_for_a_while_and_works_on(tart: Tart) -> None:
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
    began = tart.face.now()

    await tart.running("one", *shares(tart))
    await tart.done("ip", "one", "--wait", "60")
    addressed = tart.face.now()
    await tart.until(lambda: (tart.home.parent / "shares/status/runner.log").exists(), 60)

    assert 9 <= addressed - began <= 12
    assert 32 <= tart.face.now() - began <= 34


@on(VIRTUAL)
async def test_a_slow_boot_is_a_matter_of_the_script(tart: Tart) -> None:
    tart.configure(guests={"one": {"address": 300}})
    await tart.a_vm()
    await tart.running("one")

    assert (await tart("ip", "one", "--wait", "250")).code == 1
    await tart.done("ip", "one", "--wait", "60")


@on(VIRTUAL)
async def test_a_guest_s_writes_take_room(tart: Tart) -> None:
    guest(tart, writes_bytes=3_000_000_000)
    await tart.a_vm()

    await run(tart)

    assert json.loads(await tart.done("get", "one", "--format", "json"))["Size"] == "4.000"


@on(VIRTUAL)
async def test_a_hostile_guest_plants_what_the_host_should_not_follow(tart: Tart) -> None:
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
async def test_a_disk_remembers_that_it_was_booted(tart: Tart) -> None:
    guest(tart)
    bundle = await tart.a_vm()

    await run(tart)

    with (bundle / "disk.img").open("rb") as file:
        assert json.loads(file.readline())["boots"] == 1
