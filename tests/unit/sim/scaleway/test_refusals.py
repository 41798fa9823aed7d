"""What the real API refuses is refused, in the form that Scaleway's SDK decodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from scaleway_core.api import ScalewayException

from bramley.sim.scaleway.access import ApiKey
from bramley.sim.scaleway.application import ApiRequest, respond
from bramley.sim.scaleway.catalog import IMAGES
from bramley.sim.scaleway.scaleway import MINIMUM_LEASE, PROJECT, SECRET_KEY
from tests.scaleway_peer import (
    OTHER_KEY,
    OTHER_PROJECT,
    UNKNOWN,
    WRONG_KEY,
    Sdk,
    peer,
    public_key,
    refusal_of,
)

Attempt = Callable[[Sdk, str], Any]
NEW: dict[str, Any] = {
    "enable_vpc": False,
    "public_bandwidth_bps": 0,
    "enable_kext": False,
    "name": "new",
    "project_id": PROJECT,
}
M4_ONLY = next(each for each in IMAGES if "M1-M" not in each.types and not each.is_beta)

# The id of the server, which is not known before the test.
OWN = "own"


def denied(action: str, resource: str) -> dict[str, Any]:
    details = [{"action": action, "resource": resource}]
    return {"status": 403, "type": "permissions_denied", "details": details}


def missing(resource: str, id: str = UNKNOWN) -> dict[str, Any]:
    return {"status": 404, "type": "not_found", "resource": resource, "resource_id": id}


REFUSED: list[tuple[Attempt, dict[str, Any]]] = [
    (lambda sdk, _: sdk.hosts.get_server(server_id=UNKNOWN), missing("server")),
    (lambda sdk, _: sdk.hosts.update_server(server_id=UNKNOWN, name="x"), missing("server")),
    (lambda sdk, _: sdk.hosts.delete_server(server_id=UNKNOWN), missing("server")),
    (lambda sdk, _: sdk.hosts.reboot_server(server_id=UNKNOWN), missing("server")),
    (lambda sdk, own: sdk.hosts.get_server(server_id=own, zone="nl-ams-1"), missing("server", OWN)),
    (
        lambda sdk, own: sdk.hosts.reinstall_server(
            server_id=own, os_id=UNKNOWN, enable_kext=False
        ),
        missing("os"),
    ),
    (lambda sdk, _: sdk.iam.get_ssh_key(ssh_key_id=UNKNOWN), missing("ssh_key")),
    (lambda sdk, _: sdk.iam.delete_ssh_key(ssh_key_id=UNKNOWN), missing("ssh_key")),
    (lambda sdk, _: sdk.hosts.list_servers(project_id=OTHER_PROJECT), denied("list", "server")),
    (
        lambda sdk, _: sdk.hosts.create_server(
            type_="M1-M", **{**NEW, "project_id": OTHER_PROJECT}
        ),
        denied("create", "server"),
    ),
    (lambda sdk, _: sdk.iam.list_ssh_keys(), denied("list", "ssh_key")),
    (lambda sdk, _: sdk.iam.list_ssh_keys(project_id=OTHER_PROJECT), denied("list", "ssh_key")),
    (
        lambda sdk, _: sdk.iam.create_ssh_key(name="fleet", public_key=public_key()),
        denied("create", "ssh_key"),
    ),
    (
        lambda sdk, _: sdk.vpc.create_private_network(
            name="cache", default_route_propagation_enabled=False, project_id=OTHER_PROJECT
        ),
        denied("create", "private_network"),
    ),
    (
        lambda sdk, own: sdk.networks.add_server_private_network(
            server_id=own, private_network_id=UNKNOWN
        ),
        missing("private_network"),
    ),
    (
        lambda sdk, _: sdk.networks.list_server_private_networks(project_id=OTHER_PROJECT),
        denied("list", "private_network"),
    ),
    (
        lambda sdk, _: sdk.hosts.create_server(type_="M4-M", **NEW),
        {"status": 412, "type": "out_of_stock", "resource": "M4-M"},
    ),
    (lambda sdk, _: sdk.hosts.get_os(os_id=UNKNOWN), {"status": 501, "type": "unknown_service"}),
    (
        lambda sdk, own: sdk.hosts.get_server(server_id=own, zone="fr-par-9"),
        {"status": 501, "type": "unknown_service"},
    ),
]


@pytest.mark.parametrize(("attempt", "expected"), REFUSED)
async def test_refusal_has_its_type_and_its_fields(
    tmp_path: Path, attempt: Attempt, expected: dict[str, Any]
) -> None:
    async with peer(tmp_path, out_of_stock=frozenset({"M4-M"})) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])

        with pytest.raises(ScalewayException) as raised:
            attempt(target.other(), server.id)

    found = refusal_of(raised)
    if expected.get("resource_id") == OWN:
        assert found.pop("resource_id") == server.id
        expected = {key: value for key, value in expected.items() if key != "resource_id"}
    assert found == expected


INVALID: list[tuple[Attempt, str, str]] = [
    (lambda sdk, _: sdk.hosts.list_servers(page_size=101), "page_size", "constraint"),
    (lambda sdk, _: sdk.hosts.list_servers(page=-1), "page", "constraint"),
    (lambda sdk, _: sdk.hosts.list_servers(page="x"), "page", "format"),
    (lambda sdk, _: sdk.hosts.list_servers(order_by="name_asc"), "order_by", "format"),
    (lambda sdk, _: sdk.hosts.list_servers(project_id="mine"), "project_id", "format"),
    (lambda sdk, _: sdk.hosts.get_server(server_id="mac-1"), "server_id", "format"),
    (lambda sdk, own: sdk.hosts.update_server(server_id=own, name=""), "name", "constraint"),
    (lambda sdk, own: sdk.hosts.update_server(server_id=own, name="x" * 256), "name", "constraint"),
    (lambda sdk, own: sdk.hosts.update_server(server_id=own, name=7), "name", "format"),
    (
        lambda sdk, own: sdk.hosts.update_server(server_id=own, enable_vpc="y"),
        "enable_vpc",
        "format",
    ),
    (lambda sdk, _: sdk.hosts.create_server(type_="M9", **NEW), "type", "constraint"),
    (lambda sdk, _: sdk.hosts.create_server(type_=None, **NEW), "type", "required"),
    (
        lambda sdk, _: sdk.hosts.create_server(type_="M1-M", os_id=M4_ONLY.id, **NEW),
        "os_id",
        "constraint",
    ),
    (
        lambda sdk, _: sdk.iam.create_ssh_key(
            name="fleet", public_key="ssh-rsa AAAA", project_id=PROJECT
        ),
        "public_key",
        "format",
    ),
    (
        lambda sdk, _: sdk.iam.create_ssh_key(
            name="x" * 300, public_key=public_key(), project_id=PROJECT
        ),
        "name",
        "constraint",
    ),
]


@pytest.mark.parametrize(("attempt", "argument", "reason"), INVALID)
async def test_invalid_argument_is_named(
    tmp_path: Path, attempt: Attempt, argument: str, reason: str
) -> None:
    async with peer(tmp_path) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])

        with pytest.raises(ScalewayException) as raised:
            attempt(target.sdk, server.id)

    found = refusal_of(raised)
    assert (found["status"], found["type"]) == (400, "invalid_arguments")
    [detail] = found["details"]
    assert (detail["argument_name"], detail["reason"]) == (argument, reason)


async def test_list_of_ssh_keys_without_a_project_has_the_known_message(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        with pytest.raises(ScalewayException) as raised:
            target.other().iam.list_ssh_keys(name="fleet")

    message = raised.value.response.json()["message"]
    assert message == "insufficient permissions: list ssh_key"


async def test_wrong_key_is_not_authenticated(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        with pytest.raises(ScalewayException) as raised:
            target.other(secret_key=WRONG_KEY).hosts.list_servers()

        without = respond(target.scaleway, ApiRequest("GET", "/iam/v1alpha1/ssh-keys"))

    expected = {"status": 401, "type": "denied_authentication", "method": "api_key"}
    assert refusal_of(raised) == {**expected, "reason": "not_found"}
    assert without.status == 401


async def test_key_of_another_project_is_denied_and_sees_no_server(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        target.scaleway.access.keys.append(ApiKey(OTHER_KEY, OTHER_PROJECT))
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        other = target.other(secret_key=OTHER_KEY)

        assert other.hosts.list_servers().total_count == 0
        with pytest.raises(ScalewayException) as raised:
            other.hosts.update_server(server_id=server.id, name="mine")

    assert refusal_of(raised) == denied("update", "server")
    assert server.name == "tuist-pool-1"


async def test_key_of_the_organisation_needs_no_project(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        target.scaleway.access.keys.append(ApiKey(OTHER_KEY, None))
        target.sdk.iam.create_ssh_key(name="fleet", public_key=public_key())

        assert target.other(secret_key=OTHER_KEY).iam.list_ssh_keys().total_count == 1


@pytest.mark.parametrize("action", ["reboot", "reinstall", "delete"])
async def test_action_on_a_server_that_changes_its_state_is_refused(
    tmp_path: Path, action: str
) -> None:
    async with peer(tmp_path) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        await asyncio.sleep(MINIMUM_LEASE.total_seconds())
        target.sdk.hosts.reboot_server(server_id=server.id)
        more = {"enable_kext": False} if action == "reinstall" else {}

        with pytest.raises(ScalewayException) as raised:
            getattr(target.sdk.hosts, f"{action}_server")(server_id=server.id, **more)

    assert refusal_of(raised) == {
        "status": 409,
        "type": "transient_state",
        "resource": "server",
        "resource_id": server.id,
        "current_state": "rebooting",
    }


async def test_server_is_deleted_after_24_hours_and_not_before(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        ordered = target.sdk.hosts.create_server(type_="M1-M", **NEW)
        await asyncio.sleep(timedelta(hours=23, minutes=59).total_seconds())

        with pytest.raises(ScalewayException) as raised:
            target.sdk.hosts.delete_server(server_id=ordered.id)
        await asyncio.sleep(60)
        target.sdk.hosts.delete_server(server_id=ordered.id)

        assert target.scaleway.servers == {}
    found = refusal_of(raised)
    assert (found["status"], found["type"]) == (412, "precondition_failed")


async def test_rate_limit_is_of_each_key_and_ends_after_its_wait(tmp_path: Path) -> None:
    async with peer(tmp_path, requests_per_minute=2) as target:
        target.scaleway.access.keys.append(ApiKey(OTHER_KEY, None))
        for _ in range(2):
            target.sdk.hosts.list_servers()

        with pytest.raises(ScalewayException) as raised:
            target.sdk.hosts.list_servers()

        assert raised.value.status_code == 429
        target.other(secret_key=OTHER_KEY).hosts.list_servers()
        await asyncio.sleep(int(raised.value.response.headers["retry-after"]))
        target.sdk.hosts.list_servers()


async def test_quota_of_servers_is_refused(tmp_path: Path) -> None:
    async with peer(tmp_path, max_servers=1) as target:
        target.sdk.hosts.create_server(type_="M1-M", **NEW)

        with pytest.raises(ScalewayException) as raised:
            target.sdk.hosts.create_server(type_="M1-M", **NEW)

    found = refusal_of(raised)
    assert (found["status"], found["type"]) == (403, "quotas_exceeded")


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff", b"[" * 100_000, b'{"name": "\xff"}'])
async def test_body_that_is_no_object_is_refused(tmp_path: Path, body: bytes) -> None:
    async with peer(tmp_path) as target:
        request = ApiRequest("POST", "/iam/v1alpha1/ssh-keys", {}, SECRET_KEY, body)

        response = respond(target.scaleway, request)

    assert response.status == 400


async def test_server_in_a_private_network_has_its_vlan_a_while_later(tmp_path: Path) -> None:
    async with peer(tmp_path) as target:
        [server] = await target.scaleway.add_servers(["tuist-pool-1"])
        sdk = target.other(project_id=PROJECT)
        network = sdk.vpc.create_private_network(
            name="cache", default_route_propagation_enabled=False
        )
        names = {"server_id": server.id, "private_network_id": network.id}
        with pytest.raises(ScalewayException) as raised:
            sdk.networks.add_server_private_network(**names)
        assert refusal_of(raised)["status"] == 412

        sdk.hosts.update_server(server_id=server.id, enable_vpc=True)
        added = sdk.networks.add_server_private_network(**names)
        assert (str(added.status), added.vlan) == ("attaching", 0)
        assert sdk.networks.add_server_private_network(**names).id == added.id
        await asyncio.sleep(30)

        [found] = sdk.networks.list_server_private_networks_all(server_id=server.id)
        assert (found.id, str(found.status), found.vlan) == (added.id, "attached", 1000)
        assert sdk.networks.list_server_private_networks_all(private_network_id=UNKNOWN) == []
