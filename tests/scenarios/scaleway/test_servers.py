"""Servers of the simulated Scaleway over days of virtual time, by calls of Scaleway's SDK."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from scaleway_core.api import ScalewayException

from bramley.api.names import host as names
from bramley.base import errors
from bramley.host import commands
from bramley.sim.scaleway.catalog import DEFAULT_OS, IMAGES
from bramley.sim.scaleway.faults import Fault
from bramley.sim.scaleway.records import Seal, Server
from tests import virtual_time
from tests.scaleway_peer import Peer, peer, public_key

NEW: dict[str, Any] = {"enable_vpc": False, "public_bandwidth_bps": 0, "enable_kext": False}


async def minutes(count: float) -> None:
    await asyncio.sleep(count * 60)


def authorized_keys(target: Peer, server: Server) -> str:
    files = target.macs.mac(server.id).files
    path = f"{names.home('m1')}/.ssh/authorized_keys"
    return files.text(path) if files.exists(path) else ""


def builder_programs(target: Peer, server: Server) -> list[bool]:
    """Return whether the Mac has Xcode, and Homebrew."""
    files = target.macs.mac(server.id).files
    return [files.exists(names.XCODE), files.exists(names.HOMEBREW)]


def reinstall(target: Peer, server: Server, **options: Any) -> Any:
    return target.sdk.hosts.reinstall_server(server_id=server.id, enable_kext=False, **options)


async def test_ordered_server_is_delivered_after_minutes(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        hosts = target.sdk.hosts
        ordered = hosts.create_server(type_="M4-S", name="builder-1", **NEW)
        slow = hosts.create_server(type_="M4-S", name="builder-2", os_id=IMAGES[1].id, **NEW)

        await minutes(2)
        assert (ordered.status, ordered.delivered) == ("starting", False)
        await minutes(4)
        shown = hosts.get_server(server_id=ordered.id)
        assert (shown.status, shown.delivered, shown.type_) == ("ready", True, "M4-S")
        assert shown.os.family == "Tahoe"
        assert shown.deletable_at - shown.created_at == timedelta(hours=24)
        assert hosts.get_server(server_id=slow.id).status == "starting"
        await minutes(40)
        assert hosts.get_server(server_id=slow.id).os.name == IMAGES[1].name


async def test_pages_show_every_server_once_and_in_order(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        added = await target.scaleway.add_servers(f"tuist-pool-{each}" for each in range(45))
        await target.scaleway.add_servers(["elsewhere"], zone="fr-par-3")
        hosts = target.sdk.hosts

        assert [each.id for each in hosts.list_servers_all()] == [each.id for each in added]
        page = hosts.list_servers(page=3, page_size=20, order_by="created_at_desc")
        assert [each.id for each in page.servers] == [each.id for each in added[4::-1]]
        assert page.total_count == 45
        assert hosts.list_servers(page=9).servers == []
        assert len(hosts.list_servers(page_size=100).servers) == 45


async def test_builder_has_xcode_and_homebrew_after_every_installation(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        [builder] = await target.scaleway.add_servers(["builder-1"], type="M4-M", is_builder=True)
        [runner] = await target.scaleway.add_servers(["tuist-pool-1"])
        delivered = builder_programs(target, builder)
        reinstall(target, builder)
        await minutes(20)

        assert delivered == builder_programs(target, builder) == [True, True]
        assert builder_programs(target, runner) == [False, False]


async def test_rename_is_seen_later_in_lists_and_the_last_one_wins(tmp_path: Path) -> None:
    stale = timedelta(seconds=5)
    async with peer(tmp_path, list_shows_old_name=stale) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        await minutes(1)
        first = target.sdk.hosts.update_server(server_id=server.id, name="tuist-claim-pending-a")
        second = target.sdk.hosts.update_server(server_id=server.id, name="tuist-claim-pending-b")

        assert (first.name, second.name) == ("tuist-claim-pending-a", "tuist-claim-pending-b")
        assert target.sdk.get(server).name == "tuist-claim-pending-b"
        assert target.sdk.hosts.list_servers().servers[0].name == "tuist-pool-1"
        await asyncio.sleep(5)
        assert target.sdk.hosts.list_servers().servers[0].name == "tuist-claim-pending-b"


async def test_get_may_show_the_old_name_too(tmp_path: Path) -> None:
    async with peer(tmp_path, get_shows_old_name=timedelta(seconds=2)) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        await minutes(1)
        target.sdk.hosts.update_server(server_id=server.id, name="a")

        assert target.sdk.get(server).name == "tuist-pool-1"
        await asyncio.sleep(2)
        assert target.sdk.get(server).name == "a"


async def test_sealed_password_is_left_in_the_vnc_url(tmp_path: Path) -> None:
    async with peer(tmp_path, seals_after=timedelta(hours=1)) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        password = target.sdk.get(server).sudo_password
        assert target.macs.mac(server.id).state["users"]["m1"]["password"] == password

        await minutes(61)
        shown = target.sdk.get(server)
        assert shown.sudo_password == "<sealed>"
        assert unquote(urlsplit(shown.vnc_url).password or "") == password

        target.scaleway.seal(server, Seal(sudo_password="", vnc_url="<sealed>"))
        shown = target.sdk.get(server)
        assert shown.sudo_password == ""
        assert urlsplit(shown.vnc_url).password == "%3Csealed%3E"


async def test_keys_are_installed_by_a_reinstallation_only(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        key = target.sdk.iam.create_ssh_key(name="fleet", public_key=public_key())
        await minutes(1)
        target.sdk.hosts.reboot_server(server_id=server.id)
        await minutes(4)
        assert authorized_keys(target, server) == ""

        reinstall(target, server)
        await minutes(16)
        assert authorized_keys(target, server) == f"{public_key()}\n"

        target.sdk.iam.delete_ssh_key(ssh_key_id=key.id)
        assert authorized_keys(target, server) == f"{public_key()}\n"
        reinstall(target, server)
        await minutes(16)
        assert authorized_keys(target, server) == ""


async def test_reinstallation_wipes_the_mac_and_its_clients_see_a_new_host_key(
    tmp_path: Path,
) -> None:
    async with peer(tmp_path) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        before, mac = target.sdk.get(server), target.macs.mac(server.id)
        connection = target.macs.connect(before.ip, user=before.ssh_username)
        boot = mac.state["boot"]["boot_id"]
        mac.files.make_folder("/etc/tart-kubelet")
        mac.files.write("/etc/tart-kubelet/kubeconfig", b"token")
        probe = commands.Run(argv=("sw_vers",), purpose="read the version")

        newer = next(each for each in IMAGES if each.version == "26.2")
        assert reinstall(target, server, os_id=newer.id).status == "reinstalling"
        await minutes(4)
        assert target.sdk.get(server).status == "reinstalling"
        with pytest.raises(errors.HostUnreachable):
            await connection.execute(probe)
        await minutes(12)

        after = target.sdk.get(server)
        assert (after.status, after.delivered, after.os.version) == ("ready", True, "26.2")
        assert after.ip == before.ip
        assert after.sudo_password != before.sudo_password
        assert not mac.files.exists("/etc/tart-kubelet/kubeconfig")
        assert mac.state["settings"]["macos"] == "26.2"
        assert mac.state["boot"]["boot_id"] != boot
        with pytest.raises(errors.HostKeyChanged):
            await connection.execute(probe)


async def test_reboot_restarts_the_mac(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        mac = target.macs.mac(server.id)
        boot = mac.state["boot"]["boot_id"]

        assert target.sdk.hosts.reboot_server(server_id=server.id).status == "rebooting"
        await asyncio.sleep(1)
        was_up = mac.is_up
        await minutes(3)

        assert target.sdk.get(server).status == "ready"
        assert (was_up, mac.is_up) == (False, True)
        assert mac.state["boot"]["boot_id"] != boot


async def test_scheduled_deletion_happens_at_the_end_of_the_lease_unless_it_is_cancelled(
    tmp_path: Path,
) -> None:
    async with peer(tmp_path) as target:
        hosts = target.sdk.hosts
        deleted, kept = (
            hosts.create_server(type_="M1-M", name=name, **NEW) for name in ("deleted", "kept")
        )
        for each in (deleted, kept):
            shown = hosts.update_server(server_id=each.id, schedule_deletion=True)
            assert shown.deletion_scheduled
        hosts.update_server(server_id=kept.id, schedule_deletion=False)

        await minutes(60 * 24 - 1)
        assert hosts.list_servers().total_count == 2
        await minutes(2)
        assert [each.id for each in hosts.list_servers().servers] == [kept.id]


async def test_images_have_families_versions_betas_and_types(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        images = target.sdk.hosts.list_os_all(server_type="M1-M", page_size=2)
        types = target.sdk.hosts.list_server_types().server_types

    assert {each.family for each in images} == {"Sonoma", "Sequoia", "Tahoe"}
    assert {each.version for each in images if each.is_beta} == {"26.11-beta1"}
    assert DEFAULT_OS.id in {each.id for each in images}
    assert all("M1-M" in each.compatible_server_types for each in images)
    assert {"M1-M", "M2-L"} <= {each.name for each in types}


async def test_ssh_keys_and_networks_are_those_of_a_project(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        iam, vpc = target.sdk.iam, target.sdk.vpc
        made = iam.create_ssh_key(name="fleet", public_key=public_key())
        iam.create_ssh_key(name="other", public_key=public_key("other"))

        assert [each.id for each in iam.list_ssh_keys(name="fleet").ssh_keys] == [made.id]
        assert iam.get_ssh_key(ssh_key_id=made.id).public_key == public_key()
        assert len(iam.list_ssh_keys_all(page_size=1)) == 2
        network = vpc.create_private_network(
            name="cache", default_route_propagation_enabled=False, tags=["capi"]
        )
        listed = vpc.list_private_networks(name="cache").private_networks
        assert [(each.id, each.tags) for each in listed] == [(network.id, ["capi"])]


async def test_fault_applies_to_matching_requests_and_may_lose_only_the_answer(
    tmp_path: Path,
) -> None:
    async with peer(tmp_path) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        target.scaleway.faults.add(Fault(kind="status", method="PATCH", is_processed=True))

        assert target.sdk.get(server).name == "tuist-pool-1"
        with pytest.raises(ScalewayException) as raised:
            target.sdk.hosts.update_server(server_id=server.id, name="a")

        assert raised.value.status_code == 503
        assert target.sdk.get(server).name == "a"
        assert target.scaleway.calls.total() == 3


async def test_failed_installation_is_an_error_that_a_reinstallation_repairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with peer(tmp_path) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])

        async def fail(*_: object) -> None:
            raise OSError("no space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(target.macs, "install", fail)
            reinstall(target, server)
            await minutes(16)
        assert target.sdk.get(server).status == "error"
        target.sdk.hosts.reboot_server(server_id=server.id)
        await minutes(4)
        assert target.sdk.get(server).status == "error"
        assert not target.macs.mac(server.id).is_up
        reinstall(target, server)
        await minutes(16)
        assert target.sdk.get(server).status == "ready"


def run_of(seed: int, folder: Path) -> list[tuple[str, str, str]]:
    async def story() -> list[tuple[str, str, str]]:
        async with peer(folder, seed=seed) as target:
            servers = await target.scaleway.add_servers(["a", "b"])
            history: list[tuple[str, str, str]] = []
            for server in servers:
                reinstall(target, server)
            for _ in range(16):
                await minutes(1)
                history += [(each.id, each.password, each.status) for each in servers]
            return history

    return virtual_time.run(story())


def test_seed_decides_ids_passwords_and_durations(tmp_path: Path) -> None:
    first, again, other = (
        run_of(seed, tmp_path / name) for seed, name in ((1, "a"), (1, "b"), (2, "c"))
    )

    assert first == again
    assert first != other
