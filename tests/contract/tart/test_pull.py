"""`tart pull`: staging, resuming, locks and registry errors (rows 3, 8, 12, 13 and 14)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
from pathlib import Path

from tests.contract.tart.targets import IMAGE, SMALL, VIRTUAL, Started, Tart, both, on

PLAIN = {"CI": "1"}
OTHER = "ghcr.io/tuist/other:1"
SLOW = {"bytes_per_second": 2e6}  # 500 MB take 250 s


def staging(tart: Tart) -> Path:
    return tart.home / "tmp" / hashlib.md5(IMAGE.encode(), usedforsecurity=False).hexdigest()


async def half_pulled(tart: Tart) -> Started:
    """Start a slow pull that comes to a stop, and return once a tenth is there."""
    tart.configure(timings=SLOW)
    # However long we are held up now, it is not at its end when we go on.
    tart.fault("pull", "stall", percent=20, target=IMAGE)
    pull = await tart.start("pull", IMAGE, env=PLAIN)
    await tart.until(lambda: fetched(tart) >= 50_000_000, seconds=600)
    return pull


def fetched(tart: Tart) -> int:
    disk = staging(tart) / "disk.img"
    if not disk.exists():
        return 0
    with disk.open("rb") as file:
        return int(json.loads(file.readline() or b"{}").get("fetched", 0))


@both
async def test_killed_pull_is_resumed(tart: Tart) -> None:
    pull = await half_pulled(tart)
    pull.send(signal.SIGKILL)
    await pull.end()
    tart.remove_faults()
    began, had, whole = tart.driver.now(), fetched(tart), SMALL["size_bytes"] / 2

    stdout = await tart.done("pull", IMAGE, env=PLAIN)

    first = next(line for line in stdout.splitlines() if line.endswith("%"))
    assert int(first.removesuffix("%")) >= 100 * had // whole >= 10
    if tart.driver.scale == 1:  # how long a real process takes says nothing
        assert tart.driver.now() - began <= (whole - had + 10e6) / 2e6 + 1


@both
async def test_any_other_command_removes_the_staging_of_a_killed_pull(tart: Tart) -> None:
    """The trap for a driver that polls `tart list` between two tries."""
    pull = await half_pulled(tart)
    pull.send(signal.SIGKILL)
    await pull.end()

    await tart.done("list")

    assert not staging(tart).exists()


@both
async def test_clone_does_not_remove_staging(tart: Tart) -> None:
    pull = await half_pulled(tart)
    pull.send(signal.SIGKILL)
    await pull.end()

    await tart("clone", "nothing", "two")

    assert staging(tart).exists()


@both
async def test_interrupted_pull_leaves_nothing(tart: Tart) -> None:
    pull = await half_pulled(tart)

    pull.send(signal.SIGINT)

    assert (await pull.end()).code == 1
    assert not staging(tart).exists()


@both
async def test_sigterm_kills_a_pull_and_leaves_its_staging(tart: Tart) -> None:
    pull = await half_pulled(tart)

    pull.send(signal.SIGTERM)

    assert (await pull.end()).code == -signal.SIGTERM
    assert staging(tart).exists()


@both
async def test_one_registry_serves_one_pull_at_a_time(tart: Tart) -> None:
    tart.configure(images={IMAGE: SMALL, OTHER: SMALL})
    first = await half_pulled(tart)

    second = await tart.start("pull", OTHER)
    await tart.until(lambda: "waiting for lock..." in second.lines())
    assert not any("disk" in line for line in second.lines())

    first.send(signal.SIGKILL)
    tart.configure(timings={})
    await tart.until(lambda: any("pulling disk" in line for line in second.lines()))


@on(VIRTUAL)
async def test_linked_image_needs_no_lock(tart: Tart) -> None:
    tart.configure(images={IMAGE: SMALL, OTHER: SMALL})
    await tart.done("pull", OTHER)
    await half_pulled(tart)

    stdout = await tart.done("pull", OTHER)

    assert stdout.splitlines()[-1].endswith("image is already cached and linked!")


@on(VIRTUAL)
async def test_local_name_is_not_pulled(tart: Tart) -> None:
    await tart.a_vm()

    assert "nothing to pull" in await tart.done("pull", "one")


@both
async def test_progress_is_appended_in_ci_and_redrawn_otherwise(tart: Tart) -> None:
    plain = await tart.done("pull", IMAGE, env=PLAIN)
    await tart.done("delete", IMAGE)
    drawn = await tart.done("pull", IMAGE)

    assert {"0%", "100%"} <= set(plain.splitlines())
    assert ("\033" in plain, "\033" in drawn) == (False, True)


@both
async def test_http_error_is_not_retried(tart: Tart) -> None:
    tart.fault("pull", "status", code=429)

    pulled = await tart("pull", IMAGE)

    assert (pulled.code, "code: 429" in pulled.stderr) == (1, True)
    assert "Error: UnexpectedHTTPStatusCode(" in pulled.stderr


@on(VIRTUAL)
async def test_http_error_during_the_transfer_ends_the_pull(tart: Tart) -> None:
    tart.fault("pull", "status", code=503, percent=40, times=1)

    pulled = await tart("pull", IMAGE)

    assert (pulled.code, "code: 503" in pulled.stderr, staging(tart).exists()) == (1, True, True)
    await tart.done("pull", IMAGE)


@on(VIRTUAL)
async def test_pull_survives_four_lost_connections_but_not_five(tart: Tart) -> None:
    tart.fault("pull", "reset", percent=30, times=4)
    await tart.done("pull", IMAGE)
    await tart.done("delete", IMAGE)

    tart.fault("pull", "reset", percent=30, times=5, id="again")
    pulled = await tart("pull", IMAGE)

    assert (pulled.code, "connection was lost" in pulled.stderr) == (1, True)


@on(VIRTUAL)
async def test_missing_image_is_a_404(tart: Tart) -> None:
    pulled = await tart("pull", "ghcr.io/tuist/nothing:1")

    assert (pulled.code, "code: 404" in pulled.stderr) == (1, True)


@on(VIRTUAL)
async def test_stalled_registry_stalls_the_pull(tart: Tart) -> None:
    tart.fault("pull", "stall", percent=20)
    pull = await tart.start("pull", IMAGE, env=PLAIN)

    await asyncio.sleep(3600)

    # Chunks are whole or not there.
    assert fetched(tart) == SMALL["size_bytes"] / 2 * 0.15
    pull.send(signal.SIGKILL)


@on(VIRTUAL)
async def test_image_of_the_old_format_is_refused_by_new_releases(tart: Tart) -> None:
    tart.configure(images={IMAGE: {**SMALL, "format": "v1"}})

    pulled = await tart("pull", IMAGE)
    tart.configure(version="2.31.0")

    assert (pulled.code, "legacy disk media type" in pulled.stderr) == (1, True)
    await tart.done("pull", IMAGE)


@both
async def test_credentials_come_from_the_environment(tart: Tart) -> None:
    tart.configure(images={IMAGE: {**SMALL, "needs_login": "me:secret"}})
    env = {"TART_REGISTRY_USERNAME": "me", "TART_REGISTRY_PASSWORD": "secret"}

    anonymous = await tart("pull", IMAGE)
    elsewhere = await tart("pull", IMAGE, env={**env, "TART_REGISTRY_HOSTNAME": "docker.io"})

    assert (anonymous.code, elsewhere.code, "AuthFailed" in anonymous.stderr) == (1, 1, True)
    await tart.done("pull", IMAGE, env={**env, "TART_REGISTRY_HOSTNAME": "ghcr.io"})


@both
async def test_login_is_kept_unless_there_is_no_session(tart: Tart) -> None:
    tart.configure(images={IMAGE: {**SMALL, "needs_login": "me:secret"}})
    words = ("login", "ghcr.io", "--username", "me", "--password-stdin")

    tart.configure(host={"has_session": False})
    locked = await tart(*words, stdin=b"secret\n")
    tart.configure(host={})
    await tart.done(*words, stdin=b"secret\n")

    assert (locked.code, "-25308" in locked.stderr) == (1, True)
    await tart.done("pull", IMAGE)
    await tart.done("logout", "ghcr.io")
    assert (await tart("pull", IMAGE.replace(":1", ":2"))).code == 1


@on(VIRTUAL)
async def test_pull_takes_as_long_as_its_bytes(tart: Tart) -> None:
    tart.configure(images={IMAGE: {"size_bytes": 54_000_000_000}})
    began = tart.driver.now()

    await tart.done("pull", IMAGE, "--concurrency", "8")

    assert 216 <= tart.driver.now() - began <= 225  # 27 GB at 125 MB/s


@on(VIRTUAL)
async def test_pulls_behind_one_uplink_share_it(tart: Tart) -> None:
    tart.configure(
        images={IMAGE: SMALL, "other.io/tuist/runner:1": SMALL}, site=str(tart.home / "site")
    )
    began = tart.driver.now()

    calls = [await tart.start("pull", each) for each in (IMAGE, "other.io/tuist/runner:1")]
    for call in calls:
        assert (await call.end()).code == 0

    assert 8 <= tart.driver.now() - began <= 10  # 4.3 s alone


@on(VIRTUAL)
async def test_shared_chunks_are_not_fetched_again(tart: Tart) -> None:
    base = {"disk_bytes": 50_000_000_000, "size_bytes": 20_000_000_000}
    more = {**base, "base": IMAGE, "shared_bytes": 9_000_000_000}
    tart.configure(images={IMAGE: base, OTHER: more})
    await tart.done("pull", IMAGE)
    began = tart.driver.now()

    stdout = await tart.done("pull", OTHER)

    assert "allow us to skip" in stdout
    assert tart.driver.now() - began < 15  # 87 s for all of it
