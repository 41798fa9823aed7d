"""What tart deletes automatically, and on request."""

from __future__ import annotations

import asyncio

from tests.contract.tart.targets import SMALL, VIRTUAL, Tart, both, on

GB = 1_000_000_000
A, B, C = (f"ghcr.io/tuist/{name}:1" for name in "abc")
SIZED = {"disk_bytes": 5 * GB, "size_bytes": 4 * GB}
ROOM = {"disk_bytes": 13 * GB}
KEEP = {"TART_NO_AUTO_PRUNE": ""}


async def cached(tart: Tart) -> list[str]:
    names = (await tart.done("list", "--source", "oci", "--quiet")).splitlines()
    return [name for name in names if "@" not in name]


async def two_images(tart: Tart) -> None:
    tart.configure(images={A: SIZED, B: SIZED, C: SIZED}, host=ROOM)
    await tart.done("pull", B)
    await tart.done("pull", A)


@both
async def test_pull_deletes_the_longest_unused_image(tart: Tart) -> None:
    await two_images(tart)
    assert await cached(tart) == [A, B]  # and a moment later
    await tart.done("clone", B, "one")

    await tart.done("pull", C)

    assert await cached(tart) == [B, C]


@on(VIRTUAL)
async def test_nothing_is_deleted_if_it_would_not_free_enough_space(tart: Tart) -> None:
    await two_images(tart)
    tart.configure(images={A: SIZED, B: SIZED, C: {"disk_bytes": 50 * GB, "size_bytes": 9 * GB}})

    pulled = await tart("pull", C)

    assert (pulled.code, "No space left on device" in pulled.stderr) == (1, True)
    assert await cached(tart) == [A, B]


@on(VIRTUAL)
async def test_pruning_can_be_switched_off(tart: Tart) -> None:
    await two_images(tart)
    tart.configure(images={A: SIZED, B: SIZED, C: {"disk_bytes": 8 * GB, "size_bytes": 7 * GB}})

    pulled = await tart("pull", C, env=KEEP)

    assert (pulled.code, "isn’t enough space" in pulled.stderr) == (1, True)  # noqa: RUF001
    assert await cached(tart) == [A, B]


@on(VIRTUAL)
async def test_shared_blocks_are_freed_with_their_last_disk(tart: Tart) -> None:
    """So deleting an image whose golden stays gives no room."""
    await two_images(tart)
    await tart.done("clone", A, "one")
    await tart.done("clone", B, "two")
    tart.configure(images={C: {"disk_bytes": 8 * GB, "size_bytes": 6 * GB}})

    # The older image is pruned, its clone is not, and so nothing is won.
    pulled = await tart("pull", C)
    assert (pulled.code, await cached(tart)) == (1, [B])

    await tart.done("delete", "one")
    await tart.done("pull", C)


@both
async def test_moved_tag_loses_its_old_image_at_once(tart: Tart) -> None:
    tart.configure(images={A: SMALL})
    await tart.done("pull", A)
    old = await tart.done("fqn", A)

    tart.configure(images={A: {**SMALL, "size_bytes": 2 * GB}})
    await tart.done("pull", A)

    assert await tart.done("fqn", A) != old
    assert old.strip() not in await tart.done("list", "--quiet")


@on(VIRTUAL)
async def test_image_pulled_by_digest_survives_its_tag(tart: Tart) -> None:
    tart.configure(images={A: SMALL})
    await tart.done("pull", A)
    digest = (await tart.done("fqn", A)).strip()
    await tart.done("pull", digest)

    await tart.done("delete", A)

    assert await tart.done("list", "--quiet") == f"{digest}\n"


@on(VIRTUAL)
async def test_deleting_the_only_tag_deletes_the_image(tart: Tart) -> None:
    tart.configure(images={A: SMALL})
    await tart.done("pull", A)

    await tart.done("delete", A)

    assert await tart.done("list", "--quiet") == ""


@on(VIRTUAL)
async def test_prune_keeps_the_newest_within_its_budget(tart: Tart) -> None:
    await two_images(tart)

    await tart.done("prune", "--space-budget", "5")

    assert await cached(tart) == [A]


@on(VIRTUAL)
async def test_prune_deletes_old_vms_but_no_running_ones(tart: Tart) -> None:
    tart.configure(images={A: {**SMALL, "guest": {"then": "stay"}}})
    for name in ("one", "two"):
        await tart.done("clone", A, name)
    await tart.running("one")
    await asyncio.sleep(3 * 86400)

    await tart.done("prune", "--entries", "vms", "--older-than", "2")

    assert await tart.done("list", "--source", "local", "--quiet") == "one\n"


@on(VIRTUAL)
async def test_dangling_tag_is_removed_by_garbage_collection(tart: Tart) -> None:
    await two_images(tart)
    link = tart.home / "cache/OCIs/ghcr.io/tuist/a/1"
    (link / "nvram.bin").unlink()

    await tart.done("prune", "--gc")

    assert not link.is_symlink()
