"""The objects of the Macs that `bramley up` has managed: created once, and changes of users survive the next start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bramley.api import core
from bramley.api.cluster_api import MachineDeployment
from bramley.api.mac_host import MacHost
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.names import secrets
from bramley.app import cluster_api, embedded, own_macs, pools, sample_fleets
from bramley.app.listen_address import Address
from bramley.app.managed_macs import describe, to_simulated_macs
from bramley.app.own_macs import OwnMac
from bramley.app.pools import NAMESPACE
from bramley.app.sample_dispatch import GitHubApp
from bramley.app.sample_fleets import SampleFleets
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host.artifacts import ArtifactStore
from bramley.kube.client import Client
from bramley.machines.host_access import Login
from tests import virtual_time

MAC = OwnMac(user="admin", host="10.0.0.5", port=22, password=Secret("first"))
SSH_SECRET = "mac-10-0-0-5-login"


@asynccontextmanager
async def a_client() -> AsyncIterator[Client]:
    """Yield a client of a server with all definitions."""
    clock = virtual_time.clock()
    async with (
        embedded.running(clock=clock) as (api, token),
        Client(api.transport(token), clock=clock) as kube,
    ):
        await pools.install_definitions(kube)
        await cluster_api.install_definitions(kube)
        yield kube


async def replicas(kube: Client) -> dict[str, int]:
    found = (await kube.list(MachineDeployment, namespace=NAMESPACE)).items
    return {each.name: each.spec.replicas for each in found}


async def test_fleets_are_created_once_and_another_number_of_macs_scales_them(
    tmp_path: Path,
) -> None:
    key = tmp_path / "key.pem"
    key.write_text("a key")
    app, fleets = GitHubApp("http://127.0.0.1:1", key), SampleFleets(tmp_path / "mark", 2)
    async with a_client() as kube:
        await fleets.create(kube, app)
        assert await replicas(kube) == {"builders": 1, "macs": 2}
        found = await kube.list(ScalewayAppleSiliconMachineTemplate, namespace=NAMESPACE)
        [builder] = [each.spec.template.spec for each in found.items if each.name == "builders"]
        assert builder.type == sample_fleets.BUILDER_TYPE

        await kube.scale(MachineDeployment, "macs", namespace=NAMESPACE, replicas=5)
        await kube.delete(MachineDeployment, "builders", namespace=NAMESPACE)
        key.write_text("another key")
        await fleets.create(kube, app)
        assert await replicas(kube) == {"macs": 5}
        stored = await kube.get(core.Secret, "github-app", namespace=NAMESPACE)
        assert stored.data[secrets.PRIVATE_KEY] == b"another key"

        await replace(fleets, macs=3).create(kube, app)
        assert await replicas(kube) == {"macs": 3}


async def test_own_mac_is_created_once_and_its_login_follows_what_is_given() -> None:
    async with a_client() as kube:
        await MAC.create(kube)
        change = {"spec": {"fleetName": "office"}}
        await kube.merge_patch(MacHost, "mac-10-0-0-5", change, namespace=NAMESPACE)
        pinned = {"data": {secrets.HOST_FINGERPRINT: "cGlubmVk"}}
        await kube.merge_patch(core.Secret, SSH_SECRET, pinned, namespace=NAMESPACE)

        await replace(MAC, password=None).create(kube)
        await replace(MAC, password=None, private_key=Secret("a key")).create(kube)

        [host] = (await kube.list(MacHost)).items
        assert (host.spec.user, host.spec.fleet_name) == ("admin", "office")
        stored = await kube.get(core.Secret, SSH_SECRET, namespace=NAMESPACE)
        assert stored.data == {
            secrets.SUDO_PASSWORD: b"first",
            secrets.SSH_PRIVATE_KEY: b"a key",
            secrets.HOST_FINGERPRINT: b"pinned",
        }
        with pytest.raises(errors.BadConfiguration, match="--ask-password"):
            await replace(MAC, host="10.0.0.6", password=None).create(kube)


@pytest.mark.parametrize(
    ("host", "port", "name"),
    [
        ("10.0.0.5", 22, "mac-10-0-0-5"),
        ("mini.example.com", 22, "mini-example-com"),
        ("127.0.0.1", 2222, "mac-127-0-0-1-2222"),
        ("fd00::1", 22, "fd00-1"),
    ],
)
def test_name_of_an_own_mac_is_that_of_its_address(host: str, port: int, name: str) -> None:
    assert OwnMac(user="m1", host=host, port=port).name == name


@pytest.mark.parametrize(("host", "listen"), [("10.0.0.5", "10.0.0.1"), ("127.0.0.1", "127.0.0.1")])
def test_server_that_the_mac_reaches_is_accepted(host: str, listen: str) -> None:
    own_macs.require_reachable((replace(MAC, host=host),), Address(listen, 6443))


@pytest.mark.parametrize("listen", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_server_that_the_mac_does_not_reach_is_refused(listen: str) -> None:
    with pytest.raises(errors.BadConfiguration, match=rf"--listen {listen}:6443 .* 10\.0\.0\.5"):
        own_macs.require_reachable((MAC,), Address(listen, 6443))


def test_simulated_tart_is_not_sent_to_a_real_mac() -> None:
    reached: list[str] = []

    def connect(login: Login, _: ArtifactStore) -> Any:
        reached.append(login.address)

    checked = to_simulated_macs(connect)
    checked(Login(name="x", address="127.64.0.1", port=22, user="m1"), ArtifactStore())
    with pytest.raises(errors.InvalidSpec, match="bramley up --mac"):
        checked(Login(name="x", address="10.0.0.5", port=22, user="m1"), ArtifactStore())

    assert reached == ["127.64.0.1"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "No space left on device (/data)"),
        (OSError(13, "Permission denied", "/data/x"), "Permission denied (/data/x)"),
        (errors.TimedOut("too late"), "too late"),
    ],
)
def test_error_is_described_with_a_path(error: Exception, message: str) -> None:
    assert describe(error, Path("/data")) == message
