"""How runs begin and end, and what their guests do meanwhile (rows 9, 11 and 12)."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

from tests.contract.tart.faces import IMAGE, SMALL, VIRTUAL, Started, Tart, both, on

QUICK = {"address": 1, "agent": 1, "ready": 2, "work": 4, "halt": 1}
LINUX = "ghcr.io/tuist/linux:1"


def guest(tart: Tart, **script: Any) -> None:
    tart.configure(images={IMAGE: {**SMALL, "guest": {**QUICK, **script}}})


def shares(tart: Tart) -> tuple[str, ...]:
    root = tart.home.parent / "shares"
    for name in ("env", "status"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return ("--dir", f"env:{root}/env:ro", "--dir", f"status:{root}/status")


def reported(tart: Tart, file: str) -> str:
    return (tart.home.parent / "shares/status" / file).read_text()


async def run(tart: Tart, *words: str) -> tuple[int, str, str]:
    ended = await tart("run", "one", "--no-graphics", *words)
    return ended.code, ended.stdout, ended.stderr


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


@both
async def test_a_headless_start_prints_nothing(tart: Tart) -> None:
    await tart.a_vm()
    started = await tart.running("one")

    await tart.done("ip", "one", "--wait", "20")

    assert started.lines() == []


ENDINGS = {
    "crash": "due to error",
    "disconnect": "network attachment has been disconnected",
}


@on(VIRTUAL)
async def test_crashes_and_lost_networks_have_code_0(tart: Tart) -> None:
    for then, fragment in ENDINGS.items():
        guest(tart, then=then, code=None)
        await tart.done("pull", IMAGE)
        await tart.a_vm()
        code, out, _ = await run(tart)
        assert (code, fragment in out) == (0, True)


@both
async def test_stop_cuts_the_power(tart: Tart) -> None:
    guest(tart, then="stay")
    await tart.a_vm()
    started = await tart.running("one", *shares(tart))

    await tart.done("stop", "one")
    ended = await started.end()

    assert (ended.code, ended.stdout, tart.face.guests()) == (0, "Stopping VM...\n", [])


async def check_death(tart: Tart, number: signal.Signals) -> None:
    await tart.a_vm()
    started = await tart.running("one")

    started.send(number)

    assert (await started.end()).code == -number
    await tart.until(lambda: not tart.face.guests())
    assert tart.face.holder("one") is None


@both
async def test_a_vm_dies_with_its_killed_tart(tart: Tart) -> None:
    await check_death(tart, signal.SIGKILL)


@both
async def test_sigterm_ends_tart_and_its_vm_without_a_word(tart: Tart) -> None:
    await check_death(tart, signal.SIGTERM)


@both
async def test_a_tart_that_ignores_stop_is_killed(tart: Tart) -> None:
    await tart.a_vm()
    tart.fault("run", "ignores_stop")
    started = await tart.running("one")

    await tart.done("stop", "one", "--timeout", "1")

    assert (await started.end()).code == -signal.SIGKILL


@both
async def test_a_guest_that_outlives_its_tart_keeps_its_slot(tart: Tart) -> None:
    """A leaked slot: no VM is listed as running, and still there is no room for a second one more."""
    tart.fault("run", "outlives", target="one")
    tart.configure(host={"macos_guests": 1})
    await tart.a_vm()
    await tart.a_vm("two")
    started = await tart.running("one")
    await tart.done("stop", "one")
    await started.end()

    refused = await tart("run", "two")

    assert len(tart.face.guests()) == 1
    assert tart.face.holder("one") is None
    assert (refused.code, refused.stderr) == (1, "The number of VMs exceeds the system limit\n")


@both
async def test_a_third_vm_is_refused_with_the_names_of_the_others(tart: Tart) -> None:
    for name in ("one", "two", "three"):
        await tart.a_vm(name)
    for name in ("one", "two"):
        await tart.running(name)

    refused = await tart("run", "three")

    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr.strip().endswith("exceeds the system limit (other running VMs: one, two)")
    assert tart.face.holder("three") is None


@both
async def test_a_slot_is_free_as_soon_as_its_guest_is_gone(tart: Tart) -> None:
    tart.configure(host={"macos_guests": 1})
    for name in ("one", "two"):
        await tart.a_vm(name)
    started = await tart.running("one")
    started.send(signal.SIGKILL)
    await started.end()
    await tart.until(lambda: not tart.face.guests())

    await tart.running("two")


@both
async def test_linux_guests_are_not_counted(tart: Tart) -> None:
    tart.configure(images={IMAGE: SMALL, LINUX: {**SMALL, "os": "linux"}}, host={"macos_guests": 1})
    await tart.a_vm("one")
    await tart.a_vm("two", LINUX)
    await tart.running("one")

    await tart.running("two")


@on(VIRTUAL)
async def test_a_leaked_slot_without_a_process_can_be_set(tart: Tart) -> None:
    tart.configure(host={"leaked_slots": 2})
    await tart.a_vm()

    assert (await run(tart))[0] == 1
    tart.configure(host={})
    await tart.running("one")


@on(VIRTUAL)
async def test_older_releases_tell_the_limit_in_apple_s_words(tart: Tart) -> None:
    tart.configure(version="2.18.0", host={"macos_guests": 0})
    await tart.a_vm()

    code, _, err = await run(tart)

    assert (code, "maximum supported number of active virtual machines" in err) == (1, True)
    assert "VZErrorDomain Code=6" in err


FAILURES = {
    "no_session": "VZErrorDomain Code=-9",
    "nvram_locked": "Failed to lock auxiliary storage",
    "softnet_died": "Softnet process terminated prematurely",
    "limit": "exceeds the system limit",
}


@on(VIRTUAL)
async def test_starts_fail_as_the_framework_does(tart: Tart) -> None:
    await tart.a_vm()

    for fault, fragment in FAILURES.items():
        tart.heal()
        tart.fault("run", fault)
        code, _, err = await run(tart)
        assert (code, fragment in err) == (1, True)
    assert tart.face.guests() == []


@both
async def test_without_a_session_nothing_starts(tart: Tart) -> None:
    await tart.a_vm()
    (tart.home / ".sim").mkdir(exist_ok=True)
    (tart.home / ".sim/no-session").touch()

    code, _, err = await run(tart)

    assert (code, "HostKey" in err) == (1, True)
    (tart.home / ".sim/no-session").unlink()
    await tart.running("one")


@on(VIRTUAL)
async def test_a_start_may_fail_with_a_given_text(tart: Tart) -> None:
    await tart.a_vm()
    tart.fault("run", "fail", code=1, stderr="something odd", times=1)

    assert await run(tart) == (1, "", "something odd\n")
    await tart.running("one")


@on(VIRTUAL)
async def test_a_share_that_is_not_there_stops_the_start(tart: Tart) -> None:
    await tart.a_vm()

    code, _, err = await run(tart, "--dir", f"env:{tart.home}/nothing:ro")

    assert (code, "directory sharing device configuration is invalid" in err) == (1, True)


@both
async def test_the_screen_s_address_is_printed_in_ci(tart: Tart) -> None:
    await tart.a_vm()
    started = await tart.start("run", "one", "--vnc-experimental", "--graphics", env={"CI": "1"})

    await tart.until(lambda: bool(started.lines()))

    assert "vnc://:" in started.lines()[0]
    assert "@127.0.0.1:" in started.lines()[0]


@both
async def test_people_get_no_address_of_the_screen(tart: Tart) -> None:
    await tart.a_vm()
    started = await tart.start("run", "one", "--vnc-experimental", "--graphics")
    await tart.until(lambda: bool(tart.face.guests()))

    await tart.done("stop", "one")

    assert (await started.end()).stdout == "Stopping VM...\n"


async def booted(tart: Tart) -> Started:
    await tart.a_vm()
    started = await tart.running("one", *shares(tart))
    await tart.done("exec", "one", "true")
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


@both
async def test_a_suspended_vm_keeps_its_state_until_it_is_stopped(tart: Tart) -> None:
    guest(tart, then="stay")
    await tart.a_vm()
    started = await tart.running("one")

    await tart.done("suspend", "one")
    ended = await started.end()

    assert (ended.code, len(ended.stdout.splitlines())) == (0, 3)
    assert json.loads(await tart.done("get", "one", "--format", "json"))["State"] == "suspended"
    await tart.done("stop", "one")
    assert json.loads(await tart.done("get", "one", "--format", "json"))["State"] == "stopped"


@both
async def test_a_running_vm_with_the_same_mac_makes_run_choose_another(tart: Tart) -> None:
    for name in ("one", "two"):
        await tart.a_vm(name)
    config = tart.vm("one") / "config.json"
    (tart.vm("two") / "config.json").write_text(config.read_text())
    await tart.running("one")

    started = await tart.running("two")

    assert len(started.lines()) == 2
    assert (tart.vm("two") / "config.json").read_text() != config.read_text()


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
