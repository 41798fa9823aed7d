"""The layout of TART_HOME (rows 1 and 2 of the contract)."""

from __future__ import annotations

import os
import signal

from tests.contract.tart.targets import IMAGE, SMALL, Tart, both

DIGEST = "sha256:" + "a" * 64


@both
async def test_tag_is_an_absolute_link_to_its_digest(tart: Tart) -> None:
    await tart.done("pull", IMAGE)

    link = tart.home / "cache/OCIs/ghcr.io/tuist/runner/1"
    assert str(link.readlink()).startswith(str(tart.home))
    assert sorted(each.name for each in link.iterdir()) == [
        "config.json",
        "disk.img",
        "manifest.json",
        "nvram.bin",
    ]


@both
async def test_port_is_escaped_in_the_folder_of_a_registry(tart: Tart) -> None:
    tart.configure(images={"localhost:5000/runner:1": SMALL})

    await tart.done("pull", "localhost:5000/runner:1")

    assert (tart.home / "cache/OCIs/localhost%3A5000/runner/1").is_symlink()
    assert "localhost:5000/runner:1" in await tart.done("list", "--quiet")


@both
async def test_pull_by_digest_is_marked_as_explicit(tart: Tart) -> None:
    tart.configure(images={f"ghcr.io/tuist/runner@{DIGEST}": SMALL})

    await tart.done("pull", f"ghcr.io/tuist/runner@{DIGEST}")

    assert (tart.home / "cache/OCIs/ghcr.io/tuist/runner" / DIGEST / ".explicitly-pulled").exists()


@both
async def test_disks_are_sparse(tart: Tart) -> None:
    bundle = await tart.a_vm()

    disk = (bundle / "disk.img").stat()
    assert (disk.st_size, disk.st_blocks * 512 < 1 << 20) == (SMALL["disk_bytes"], True)


@both
async def test_incomplete_vm_is_neither_listed_nor_usable(tart: Tart) -> None:
    bundle = await tart.a_vm()
    (bundle / "disk.img").unlink()

    got = await tart("get", "one")

    assert await tart.done("list", "--source", "local", "--quiet") == ""
    assert (got.code, "is missing some of its files" in got.stderr) == (1, True)


@both
async def test_incomplete_vm_without_config_cannot_be_deleted(tart: Tart) -> None:
    bundle = await tart.a_vm()
    (bundle / "config.json").unlink()

    deleted = await tart("delete", "one")

    assert (deleted.code, "does not exist" in deleted.stderr, bundle.exists()) == (2, True, True)


@both
async def test_lock_of_a_running_vm_names_the_process_that_runs_it(tart: Tart) -> None:
    await tart.a_vm()
    assert tart.driver.holder("one") is None

    run = await tart.running("one")
    assert tart.driver.holder("one") == run.pid

    await tart.done("stop", "one")
    await run.end()
    assert tart.driver.holder("one") is None


@both
async def test_guest_is_not_in_the_process_group_of_tart(tart: Tart) -> None:
    await tart.a_vm()
    run = await tart.running("one")

    (guest,) = tart.driver.guests()
    assert guest != run.pid
    if tart.driver.scale < 1:
        assert os.getsid(guest) == os.getpgid(guest) == guest


@both
async def test_commands_wait_for_the_lock_of_the_home(tart: Tart) -> None:
    """Clones of several processes come one after the other."""
    tart.configure(timings={"clone": 60.0})
    await tart.done("pull", IMAGE)
    began = tart.driver.now()

    calls = [await tart.start("clone", IMAGE, name) for name in ("one", "two")]
    codes = [(await call.end()).code for call in calls]

    assert codes == [0, 0]
    assert tart.driver.now() - began >= 2 * 60 * tart.driver.scale


@both
async def test_staging_is_locked_while_a_command_runs(tart: Tart) -> None:
    tart.configure(timings={"clone": 100_000.0})
    await tart.done("pull", IMAGE)
    clone = await tart.start("clone", IMAGE, "one")
    await tart.until(lambda: any((tart.home / "tmp").iterdir()))

    await tart.done("list")

    assert any((tart.home / "tmp").iterdir())
    clone.send(signal.SIGKILL)
