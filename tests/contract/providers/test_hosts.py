"""Lists, claims, releases and repairs of hosts."""

from __future__ import annotations

import asyncio

import pytest

from bramley.base import errors
from bramley.providers.provider import HostRef, HostState
from bramley.providers.selection import HostRequirements, claimable
from tests.contract.providers.targets import OS, OTHER_ZONE, PENDING, POOL, ZONE, Target

WANTED = HostRequirements("m1", "M2-L", OS, POOL)


async def test_all_pages_of_one_zone_and_project_are_listed(target: Target) -> None:
    added = [await target.add(f"{POOL}{number}") for number in range(205)]
    await target.add(f"{POOL}x", OTHER_ZONE)
    foreign = await target.add(f"{POOL}y")
    target.server(foreign).project_id = "99999999-9999-4999-8999-999999999999"

    found = await target.provider().hosts(ZONE)

    assert [host.ref for host in found] == added
    assert len(target.requests) == 3
    assert found[0].name == f"{POOL}0"
    assert found[0].type == "M2-L"
    assert found[0].can_be_claimed


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("ready", HostState.READY),
        ("reinstalling", HostState.REINSTALLING),
        ("starting", HostState.BUSY),
        ("rebooting", HostState.BUSY),
        ("error", HostState.FAILED),
    ],
)
async def test_states(target: Target, status: str, state: HostState) -> None:
    ref = await target.add(status=status)

    host = await target.provider().host(ref)

    assert (host.state, host.status) == (state, status)


async def test_unknown_host_is_not_found(target: Target) -> None:
    with pytest.raises(errors.NotFound):
        await target.provider().host(HostRef(ZONE, "00000000-0000-4000-8000-000000000000"))


async def test_claimed_host_has_the_name_and_a_repeated_claim_writes_nothing(
    target: Target,
) -> None:
    host = await target.host()
    provider = target.provider()

    claimed = await provider.claim(host, "m1")
    repeated = await provider.claim(host, "m1")

    assert claimed is not None
    assert claimed.name == target.name(host.ref) == "m1"
    assert repeated == claimed
    assert len(target.writes()) == 2
    assert provider.provider_id(host.ref) == f"scw-applesilicon://{ZONE}/{host.ref.id}"


async def test_changed_hosts_are_lost_and_untouched(target: Target) -> None:
    listed = [await target.host() for _ in range(4)]
    target.rename(listed[0].ref, "m2")
    target.become(listed[1].ref, "rebooting")
    target.server(listed[2].ref).is_deletion_scheduled = True
    target.remove(listed[3].ref)

    assert [await target.provider().claim(host, "m1") for host in listed] == [None] * 4
    assert target.writes() == []


async def test_claim_waits_for_a_rename_that_shows_late(stale_target: Target) -> None:
    host = await stale_target.host()

    claimed = await stale_target.provider().claim(host, "m1")

    assert claimed is not None
    assert claimed.name == "m1"


@pytest.mark.parametrize("renames_before", [0, 1])
async def test_lost_answer_of_a_rename_is_repeated(target: Target, renames_before: int) -> None:
    host = await target.host()
    for _ in range(renames_before):
        # A fault without an effect: the answer is that of the application.
        target.fail("PATCH", host.ref.id, is_processed=True, status=200, body="{}")
    target.fail("PATCH", host.ref.id, is_processed=True)

    claimed = await target.provider().claim(host, "m1")

    assert claimed is not None
    assert target.name(host.ref) == "m1"


async def test_claim_whose_answers_are_all_lost_is_found_again(target: Target) -> None:
    host = await target.host()
    await target.add(f"{POOL}other")
    target.fail("PATCH", host.ref.id, is_processed=True, times=4)
    provider = target.provider()
    with pytest.raises(errors.ProviderUnavailable):
        await provider.claim(host, "m1")
    assert target.name(host.ref).startswith(PENDING)

    listed = await provider.host(host.ref)
    claimed = await provider.claim(listed, "m1")

    assert claimed is not None
    assert claimed.ref == host.ref
    assert claimable(await provider.hosts(ZONE), WANTED) == [claimed]


async def test_managers_with_leases_never_share_a_host(stale_target: Target) -> None:
    """The Lease rule of callers, over a cloud whose reads show a rename late."""
    target = stale_target
    refs = [await target.add(f"{POOL}{number}") for number in range(3)]
    leases: dict[HostRef, str] = {}

    async def claim(name: str, seed: int) -> HostRef | None:
        provider = target.provider(seed=seed)
        required = HostRequirements(name, "M2-L", OS, POOL)
        for host in claimable(await provider.hosts(ZONE), required):
            if leases.setdefault(host.ref, name) == name:
                if await provider.claim(host, name):
                    return host.ref
                del leases[host.ref]
        return None

    names = [f"m{number}" for number in range(6)]
    claims = (claim(name, number) for number, name in enumerate(names))
    won = dict(zip(names, await asyncio.gather(*claims), strict=True))

    winners = {ref: name for name, ref in won.items() if ref is not None}
    assert sorted(winners) == sorted(refs)
    assert {ref: target.name(ref) for ref in refs} == winners


async def test_released_host_is_renamed_and_reinstalled_with_the_newest_image(
    target: Target,
) -> None:
    ref = await target.add("m1")

    assert await target.provider().release(ref, "m1", pool_prefix=POOL, os=OS)

    assert target.name(ref) == f"{POOL}{ref.id}"
    assert target.server(ref).os.name == "macos-tahoe-26.3"
    assert (await target.provider().host(ref)).state is HostState.REINSTALLING


async def test_repeated_release_is_a_success(target: Target) -> None:
    ref = await target.add("m1")
    provider = target.provider()
    await provider.release(ref, "m1", pool_prefix=POOL, os=OS)

    assert await provider.release(ref, "m1", pool_prefix=POOL, os=OS)
    assert target.name(ref) == f"{POOL}{ref.id}"


async def test_without_an_image_of_the_family_the_host_is_untouched(target: Target) -> None:
    ref = await target.add("m1")
    provider = target.provider()

    with pytest.raises(errors.InvalidSpec, match="family"):
        await provider.release(ref, "m1", pool_prefix=POOL, os="macos-ventura-13.6")
    with pytest.raises(errors.InvalidSpec, match="family"):
        await provider.reinstall(ref, os="macos-ventura-13.6")

    assert target.writes() == []
    assert await provider.release(ref, "m1", pool_prefix=POOL, os="")


async def test_failed_list_of_images_leaves_the_host_untouched(target: Target) -> None:
    ref = await target.add("m1")
    target.fail("GET", "/os", times=4)

    with pytest.raises(errors.ProviderUnavailable):
        await target.provider().release(ref, "m1", pool_prefix=POOL, os=OS)

    assert target.writes() == []


@pytest.mark.parametrize("call", ["GET servers", "PATCH servers", "POST /reinstall"])
async def test_host_that_is_gone_is_released(target: Target, call: str) -> None:
    ref = await target.add("m1")
    method, path = call.split()
    target.fail(method, path, status=404, body='{"type":"not_found"}')

    assert not await target.provider().release(ref, "m1", pool_prefix=POOL, os=OS)


async def test_unknown_zone_of_images_is_not_taken_for_a_gone_host(target: Target) -> None:
    ref = await target.add("m1")
    target.fail("GET", "/os", status=404, body="{}")

    with pytest.raises(errors.ProviderUnavailable):
        await target.provider().release(ref, "m1", pool_prefix=POOL, os=OS)


async def test_reinstallation_that_runs_already_is_enough(target: Target) -> None:
    ref = await target.add("m1", status="reinstalling")

    assert await target.provider().release(ref, "m1", pool_prefix=POOL, os=OS)
    await target.provider().reinstall(ref, os=OS)


async def test_host_that_reboots_is_not_taken_for_a_wiped_one(target: Target) -> None:
    ref = await target.add("m1", status="rebooting")

    with pytest.raises(errors.HostBusy, match="rebooting"):
        await target.provider().release(ref, "m1", pool_prefix=POOL, os=OS)

    target.become(ref, "ready")
    assert await target.provider().release(ref, "m1", pool_prefix=POOL, os=OS)


async def test_host_of_another_owner_is_not_released(target: Target) -> None:
    ref = await target.add("m2")

    with pytest.raises(errors.Refused, match="'m2' and not 'm1'"):
        await target.provider().release(ref, "m1", pool_prefix=POOL, os=OS)

    assert target.writes() == []


async def test_reboot_leaves_busy_and_gone_hosts_alone(target: Target) -> None:
    ref = await target.add("m1")
    provider = target.provider()

    await provider.reboot(ref)
    await provider.reboot(ref)
    target.remove(ref)
    await provider.reboot(ref)

    assert len(target.writes()) == 3


async def test_reboot_whose_answer_is_lost_is_not_repeated(target: Target) -> None:
    ref = await target.add("m1")
    target.fail("POST", "/reboot", is_processed=True)

    with pytest.raises(errors.ProviderUnavailable):
        await target.provider().reboot(ref)

    assert len(target.writes()) == 1


async def test_login(target: Target) -> None:
    ref = await target.add("m1")

    login = await target.provider().credentials(ref)

    assert (login.address, login.ssh_user) == (target.server(ref).ip, "m1")
    assert login.sudo_password is not None
    assert login.sudo_password.reveal() == target.server(ref).password


async def test_sealed_password_is_none(target: Target) -> None:
    ref = await target.add("m1")
    target.seal(ref)

    assert (await target.provider().credentials(ref)).sudo_password is None
