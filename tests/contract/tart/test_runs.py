"""`tart run`: start, end and the limit of guests (rows 9 and 11)."""

from __future__ import annotations

import json
import signal

from tests.contract.tart.guest_scripts import guest, run, shares
from tests.contract.tart.targets import IMAGE, SMALL, VIRTUAL, Tart, both, on

LINUX = "ghcr.io/tuist/linux:1"


@both
async def test_headless_start_prints_nothing(tart: Tart) -> None:
    await tart.a_vm()
    started = await tart.running("one")

    await tart.done("ip", "one", "--wait", "180")

    assert started.lines() == []


ENDINGS = {"crash": "due to error", "disconnect": "has been disconnected with error"}


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

    assert (ended.code, ended.stdout, tart.driver.guests()) == (0, "Stopping VM...\n", [])


async def check_death(tart: Tart, number: signal.Signals) -> None:
    await tart.a_vm()
    started = await tart.running("one")

    started.send(number)

    assert (await started.end()).code == -number
    await tart.until(lambda: not tart.driver.guests())
    assert tart.driver.holder("one") is None


@both
async def test_vm_dies_with_its_killed_tart(tart: Tart) -> None:
    await check_death(tart, signal.SIGKILL)


@both
async def test_sigterm_ends_tart_and_its_vm_without_output(tart: Tart) -> None:
    await check_death(tart, signal.SIGTERM)


@both
async def test_tart_that_ignores_stop_is_killed(tart: Tart) -> None:
    await tart.a_vm()
    tart.fault("run", "ignores_stop")
    started = await tart.running("one")

    await tart.done("stop", "one", "--timeout", "1")

    assert (await started.end()).code == -signal.SIGKILL


@both
async def test_guest_that_outlives_its_tart_keeps_its_slot(tart: Tart) -> None:
    """A leaked slot: no VM is listed as running, and still there is no room for a second one more."""
    tart.fault("run", "outlives", target="one")
    tart.configure(host={"macos_guests": 1})
    await tart.a_vm()
    await tart.a_vm("two")
    started = await tart.running("one")
    await tart.done("stop", "one")
    await started.end()

    refused = await tart("run", "two")

    assert len(tart.driver.guests()) == 1
    assert tart.driver.holder("one") is None
    assert (refused.code, refused.stderr) == (1, "The number of VMs exceeds the system limit\n")


@both
async def test_third_vm_is_refused_with_the_names_of_the_others(tart: Tart) -> None:
    for name in ("one", "two", "three"):
        await tart.a_vm(name)
    for name in ("one", "two"):
        await tart.running(name)

    refused = await tart("run", "three")

    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr.strip().endswith("exceeds the system limit (other running VMs: one, two)")
    assert tart.driver.holder("three") is None


@both
async def test_slot_is_free_as_soon_as_its_guest_is_gone(tart: Tart) -> None:
    tart.configure(host={"macos_guests": 1})
    for name in ("one", "two"):
        await tart.a_vm(name)
    started = await tart.running("one")
    started.send(signal.SIGKILL)
    await started.end()
    await tart.until(lambda: not tart.driver.guests())

    await tart.running("two")


@both
async def test_linux_guests_are_not_counted(tart: Tart) -> None:
    tart.configure(images={IMAGE: SMALL, LINUX: {**SMALL, "os": "linux"}}, host={"macos_guests": 1})
    await tart.a_vm("one")
    await tart.a_vm("two", LINUX)
    await tart.running("one")

    await tart.running("two")


@on(VIRTUAL)
async def test_leaked_slot_without_a_process_can_be_set(tart: Tart) -> None:
    tart.configure(host={"leaked_slots": 2})
    await tart.a_vm()

    assert (await run(tart))[0] == 1
    tart.configure(host={})
    await tart.running("one")


@on(VIRTUAL)
async def test_older_releases_print_the_limit_error_of_apple(tart: Tart) -> None:
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
        tart.remove_faults()
        tart.fault("run", fault)
        code, _, err = await run(tart)
        assert (code, fragment in err) == (1, True)
    assert tart.driver.guests() == []


@both
async def test_no_vm_starts_without_a_session(tart: Tart) -> None:
    await tart.a_vm()
    (tart.home / ".sim").mkdir(exist_ok=True)
    (tart.home / ".sim/no-session").touch()

    code, _, err = await run(tart)

    assert (code, "HostKey" in err) == (1, True)
    (tart.home / ".sim/no-session").unlink()
    await tart.running("one")


@on(VIRTUAL)
async def test_start_may_fail_with_a_given_text(tart: Tart) -> None:
    await tart.a_vm()
    tart.fault("run", "fail", code=1, stderr="something odd", times=1)

    assert await run(tart) == (1, "", "something odd\n")
    await tart.running("one")


@on(VIRTUAL)
async def test_missing_share_prevents_the_start(tart: Tart) -> None:
    await tart.a_vm()

    code, _, err = await run(tart, "--dir", f"env:{tart.home}/nothing:ro")

    assert (code, "directory sharing device configuration is invalid" in err) == (1, True)


@both
async def test_screen_address_is_printed_in_ci(tart: Tart) -> None:
    await tart.a_vm()
    started = await tart.start("run", "one", "--vnc-experimental", "--graphics", env={"CI": "1"})

    await tart.until(lambda: bool(started.lines()))

    assert "vnc://:" in started.lines()[0]
    assert "@127.0.0.1:" in started.lines()[0]


@both
async def test_screen_address_is_not_printed_outside_ci(tart: Tart) -> None:
    await tart.a_vm()
    started = await tart.start("run", "one", "--vnc-experimental", "--graphics")
    await tart.until(lambda: bool(tart.driver.guests()))

    await tart.done("stop", "one")

    assert (await started.end()).stdout == "Stopping VM...\n"


@both
async def test_suspended_vm_keeps_its_state_until_it_is_stopped(tart: Tart) -> None:
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
async def test_saved_state_is_cloned_and_restored_only_by_the_same_hardware(tart: Tart) -> None:
    guest(tart, then="stay")
    await tart.a_vm()
    started = await tart.running("one")
    await tart.done("suspend", "one")
    await started.end()
    for name in ("same", "changed"):
        await tart.done("clone", "one", name)
    await tart.done("set", "changed", "--random-mac")

    refused = await tart("run", "changed", "--no-graphics")
    await tart.running("same")

    assert refused.code == 1
    assert "restore" in refused.stderr
    assert not (tart.vm("same") / "state.vzvmsave").exists()


@both
async def test_running_vm_with_the_same_mac_makes_run_choose_another(tart: Tart) -> None:
    for name in ("one", "two"):
        await tart.a_vm(name)
    config = tart.vm("one") / "config.json"
    (tart.vm("two") / "config.json").write_text(config.read_text())
    await tart.running("one")

    started = await tart.running("two")

    assert len(started.lines()) == 2
    assert (tart.vm("two") / "config.json").read_text() != config.read_text()
