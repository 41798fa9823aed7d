"""Making, changing and finding VMs: clone, create, set, rename, ip (row 10)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.contract.tart.guest_scripts import guest, shares
from tests.contract.tart.targets import IMAGE, SMALL, VIRTUAL, Tart, both, on


def config(tart: Tart, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tart.vm(name) / "config.json").read_text())
    return found


@both
async def test_clone_pulls_an_image_that_is_not_cached(tart: Tart) -> None:
    stdout = await tart.done("clone", IMAGE, "one")

    assert "pulling disk" in stdout
    assert "pulling" not in await tart.done("clone", IMAGE, "two")


@on(VIRTUAL)
async def test_cached_tag_is_never_refreshed_by_a_clone(tart: Tart) -> None:
    await tart.done("clone", IMAGE, "one")
    tart.configure(images={IMAGE: {**SMALL, "cpu": 8}})

    await tart.done("clone", IMAGE, "two")

    assert config(tart, "two")["cpuCount"] == 4


@both
async def test_clones_share_a_serial_number_but_no_mac(tart: Tart) -> None:
    """The first clone has even its image's MAC."""
    await tart.done("clone", IMAGE, "one")
    await tart.done("clone", IMAGE, "two")

    one, two = config(tart, "one"), config(tart, "two")
    assert one["ecid"] == two["ecid"]
    assert one["macAddress"] != two["macAddress"]


@both
async def test_set_gives_a_vm_its_own_identity_and_size(tart: Tart) -> None:
    await tart.done("clone", IMAGE, "one")
    before = config(tart, "one")

    words = ("--cpu", "6", "--memory", "4096", "--random-mac", "--random-serial")
    await tart.done("set", "one", *words)

    after = config(tart, "one")
    assert (after["cpuCount"], after["memorySize"]) == (6, 4096 << 20)
    assert after["ecid"] != before["ecid"]
    assert after["macAddress"] != before["macAddress"]


@on(VIRTUAL)
async def test_set_refuses_less_than_the_image_needs(tart: Tart) -> None:
    await tart.a_vm()

    few = await tart("set", "one", "--cpu", "1")
    small = await tart("set", "one", "--memory", "512")
    shrunk = await tart("set", "one", "--disk-size", "1")

    assert (few.code, small.code, shrunk.code) == (1, 1, 1)
    assert "at minimum (requested" in few.stderr
    assert "at minimum (requested" in small.stderr
    assert "should be larger" in shrunk.stderr


@on(VIRTUAL)
async def test_disk_can_be_enlarged(tart: Tart) -> None:
    await tart.a_vm()

    await tart.done("set", "one", "--disk-size", "60")
    await tart.done("set", "one", "--disk-size", "60")

    assert json.loads(await tart.done("get", "one", "--format", "json"))["Disk"] == 60


@on(VIRTUAL)
async def test_leaving_out_display_refit_clears_it(tart: Tart) -> None:
    await tart.a_vm()
    await tart.done("set", "one", "--display-refit", "--display", "1200x800px")
    assert config(tart, "one")["displayRefit"] is True

    await tart.done("set", "one", "--cpu", "4")

    assert "displayRefit" not in config(tart, "one")
    assert "1200x800px" in await tart.done("get", "one")


@both
async def test_clone_replaces_a_vm_silently(tart: Tart) -> None:
    await tart.a_vm()
    await tart.done("set", "one", "--cpu", "6")

    await tart.done("clone", IMAGE, "one")

    assert config(tart, "one")["cpuCount"] == 4


@both
async def test_clone_replaces_even_a_running_vm(tart: Tart) -> None:
    await tart.a_vm()
    await tart.running("one")

    await tart.done("clone", IMAGE, "one")

    assert tart.driver.holder("one") is None
    assert tart.driver.guests()


@on(VIRTUAL)
async def test_later_release_refuses_to_replace(tart: Tart) -> None:
    tart.configure(clone_overwrites=False)
    await tart.a_vm()

    refused = await tart("clone", IMAGE, "one")

    assert (refused.code, "already exists" in refused.stderr) == (1, True)
    await tart.done("clone", IMAGE, "one", "--overwrite")


@both
async def test_incomplete_clone_can_be_left_behind(tart: Tart) -> None:
    tart.fault("clone", "half", times=1)
    await tart.done("pull", IMAGE)

    cloned = await tart("clone", IMAGE, "one")

    assert (cloned.code, tart.vm("one").exists()) == (1, True)
    assert await tart.done("list", "--source", "local", "--quiet") == ""
    await tart.done("clone", IMAGE, "one")


@on(VIRTUAL)
async def test_clone_may_find_no_space(tart: Tart) -> None:
    tart.fault("clone", "no_space", target="one")
    await tart.done("pull", IMAGE)

    cloned = await tart("clone", IMAGE, "one")

    assert (cloned.code, "No space left on device" in cloned.stderr) == (1, True)
    await tart.done("clone", IMAGE, "two")


@both
async def test_clone_fails_when_a_config_is_being_rewritten(tart: Tart) -> None:
    await tart.a_vm()
    (tart.vm("one") / "config.json").write_text("{")

    cloned = await tart("clone", IMAGE, "two")

    assert (cloned.code, cloned.stderr.startswith("Error: ")) == (1, True)


@both
async def test_rename_keeps_everything_but_the_name(tart: Tart) -> None:
    await tart.a_vm()
    mac = config(tart, "one")["macAddress"]

    await tart.done("rename", "one", "two")

    assert config(tart, "two")["macAddress"] == mac
    assert not tart.vm("one").exists()


@on(VIRTUAL)
async def test_delete_stops_at_the_first_that_fails(tart: Tart) -> None:
    for name in ("one", "two"):
        await tart.done("clone", IMAGE, name)

    deleted = await tart("delete", "one", "nothing", "two")

    assert deleted.code == 2
    assert await tart.done("list", "--source", "local", "--quiet") == "two\n"


@both
async def test_empty_vm_can_be_made(tart: Tart) -> None:
    await tart.done("create", "one", "--linux", "--disk-size", "20")

    got = json.loads(await tart.done("get", "one", "--format", "json"))

    assert (got["OS"], got["Disk"], got["Memory"]) == ("linux", 20, 4096)


@both
async def test_vm_without_a_lease_has_no_address(tart: Tart) -> None:
    await tart.a_vm()
    began = tart.driver.now()

    result = await tart("ip", "one")

    assert (result.code, "no IP address found" in result.stderr) == (1, True)
    assert tart.driver.now() - began >= 1


@both
async def test_address_stays_after_the_guest_ended(tart: Tart) -> None:
    """A lease is answer enough for `tart ip`."""
    await tart.a_vm()
    run = await tart.running("one")
    address = await tart.done("ip", "one", "--wait", "180")
    await tart.done("stop", "one")
    await run.end()

    assert address.startswith("192.168.64.")
    assert await tart.done("ip", "one") == address


@on(VIRTUAL)
async def test_expired_lease_is_no_address(tart: Tart) -> None:
    tart.configure(host={"lease_seconds": 600})
    await tart.a_vm()
    run = await tart.running("one")
    await tart.done("ip", "one", "--wait", "180")
    await tart.done("stop", "one")
    await run.end()

    await asyncio.sleep(601)

    assert (await tart("ip", "one")).code == 1


@on(VIRTUAL)
async def test_lease_time_of_the_preferences_is_stronger_than_that_of_the_settings(
    tart: Tart,
) -> None:
    tart.configure(host={"lease_seconds": 86400})
    (tart.home / ".sim").mkdir(exist_ok=True)
    (tart.home / ".sim/lease-seconds").write_text("600")
    await tart.a_vm()
    run = await tart.running("one")

    await tart.done("ip", "one", "--wait", "180")

    [lease] = [
        line for line in (tart.home / ".sim/dhcpd_leases").read_text().split() if "lease=" in line
    ]
    until = int(lease.removeprefix("lease="), 16)
    assert 500 <= until - tart.driver.now() <= 600
    await tart.done("stop", "one")
    await run.end()


def lease_all(tart: Tart, *, seconds: int) -> None:
    leases = tart.home / ".sim/dhcpd_leases"
    leases.parent.mkdir(parents=True)
    until = hex(int(tart.driver.now()) + seconds)
    leases.write_text(
        "".join(
            f"{{\n\tip_address=192.168.64.{n}\n\thw_address=1,2:0:0:0:0:{n:x}\n\tlease={until}\n}}\n"
            for n in range(2, 255)
        )
    )


@on(VIRTUAL)
async def test_address_pool_can_be_exhausted(tart: Tart) -> None:
    """About 253 VMs a day, unless leases are shortened."""
    lease_all(tart, seconds=86_400)
    await tart.a_vm()
    await tart.running("one")

    assert (await tart("ip", "one", "--wait", "60")).code == 1


@on(VIRTUAL)
async def test_guest_without_a_lease_gets_no_job_until_another_lease_expires(tart: Tart) -> None:
    lease_all(tart, seconds=600)
    guest(tart, then="stay")
    await tart.a_vm()
    await tart.running("one", *shares(tart))
    report = tart.home.parent / "shares/status/runner-rc"

    await asyncio.sleep(590)
    assert not report.exists()

    await tart.done("ip", "one", "--wait", "60")
    await asyncio.sleep(60)
    assert report.exists()


@on(VIRTUAL)
async def test_running_guest_keeps_its_lease(tart: Tart) -> None:
    tart.configure(host={"lease_seconds": 60})
    guest(tart, then="stay")
    await tart.a_vm()
    await tart.running("one", *shares(tart))
    address = await tart.done("ip", "one", "--wait", "60")

    await asyncio.sleep(600)

    assert await tart.done("ip", "one") == address


@on(VIRTUAL)
async def test_guest_agent_returns_its_address(tart: Tart) -> None:
    await tart.a_vm()
    await tart.running("one")
    address = await tart.done("ip", "one", "--wait", "60", "--resolver", "agent")

    assert address == await tart.done("ip", "one", "--resolver", "arp")
