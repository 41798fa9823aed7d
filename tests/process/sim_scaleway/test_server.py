"""`bramley sim scaleway` as a process: Scaleway's SDK over HTTP, and its servers over SSH."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
import signal
import socket
import stat
import sys
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncssh
import pytest
import requests
from scaleway_core.api import ScalewayException

from bramley.app import sim_scaleway
from bramley.app.listen_address import Address
from bramley.base.errors import BadConfiguration
from bramley.sim.scaleway import ssh_macs
from bramley.sim.scaleway.catalog import DEFAULT_OS
from bramley.sim.scaleway.scaleway import PROJECT
from tests.scaleway_peer import UNKNOWN, WRONG_KEY, Sdk

START = "from bramley.cli.main import run; import sys; sys.exit(run(['sim', 'scaleway', *sys.argv[1:]]))"
TIMEOUT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Started:
    """A running `bramley sim scaleway`, and the SDK with its key."""

    process: Process
    screen: str
    url: str
    ssh_port: int
    key: str

    @property
    def sdk(self) -> Sdk:
        return Sdk.over_http(self.url, secret_key=self.key, project_id=PROJECT)


@asynccontextmanager
async def started(folder: Path, *flags: str) -> AsyncIterator[Started]:
    key = folder / "secret-key"
    arguments = ["--root", str(folder / "macs"), "--secret-key-file", str(key)]
    arguments += ["--listen", "127.0.0.1:0", "--ssh-port", "0", "--speed", "600", *flags]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, *arguments, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            screen = (await process.stdout.readuntil(b"Ctrl-C.\n")).decode()
        url, port = re.search(r"http://\S+", screen), re.search(r"SSH +port (\d+)", screen)
        assert url, screen
        assert port, screen
        yield Started(process, screen, url[0], int(port[1]), key.read_text().strip())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await process.wait() == 0


async def refused(call: Callable[[], Any]) -> ScalewayException:
    with pytest.raises(ScalewayException) as raised:
        await asyncio.to_thread(call)
    return raised.value


def posted(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode())  # noqa: S310 - a loopback URL
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
        return json.load(response)


async def until_ready(sdk: Sdk, server: str) -> Any:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            shown = await asyncio.to_thread(sdk.hosts.get_server, server_id=server)
            if shown.status == "ready" and shown.delivered:
                return shown
            await asyncio.sleep(0.05)


async def output_of(target: Started, shown: Any, command: str, **login: Any) -> str:
    """Return the output of a command on a server, with a key or the password that the API shows."""
    options = {"known_hosts": None, "client_keys": None, "agent_path": None, "config": None}
    async with asyncssh.connect(
        shown.ip, target.ssh_port, username=shown.ssh_username, **{**options, **login}
    ) as connection:
        return str((await connection.run(command, check=True)).stdout).strip()


async def test_every_call_of_the_sdk_is_answered(tmp_path: Path) -> None:
    async with started(tmp_path, "--servers", "2", "--type", "M4-S") as target:
        sdk = target.sdk
        servers = await asyncio.to_thread(sdk.hosts.list_servers_all)
        assert [(each.name, each.type_) for each in servers] == [
            ("tuist-pool-1", "M4-S"),
            ("tuist-pool-2", "M4-S"),
        ]
        renamed = await asyncio.to_thread(
            sdk.hosts.update_server, server_id=servers[0].id, name="mac-a", enable_vpc=True
        )
        assert (renamed.name, renamed.vpc_status) == ("mac-a", "vpc_enabled")
        ordered = await asyncio.to_thread(
            sdk.hosts.create_server,
            type_="M2-L",
            name="new",
            enable_vpc=False,
            public_bandwidth_bps=0,
            enable_kext=False,
        )
        assert (await until_ready(sdk, ordered.id)).name == "new"
        images = await asyncio.to_thread(sdk.hosts.list_os_all, server_type="M2-L")
        assert DEFAULT_OS.id in {each.id for each in images}
        assert (await asyncio.to_thread(sdk.hosts.list_server_types)).server_types
        network = await asyncio.to_thread(
            sdk.vpc.create_private_network, name="cache", default_route_propagation_enabled=False
        )
        listed = await asyncio.to_thread(sdk.vpc.list_private_networks_all)
        assert [each.id for each in listed] == [network.id]

        for id in (ordered.id, servers[1].id):
            rejected = await refused(partial(sdk.hosts.delete_server, server_id=id))
            assert rejected.status_code == 412


async def test_refusals_and_faults_reach_the_sdk(tmp_path: Path) -> None:
    async with started(tmp_path, "--servers", "0") as target:
        without_project = Sdk.over_http(target.url, secret_key=target.key)
        denied = await refused(without_project.iam.list_ssh_keys)
        assert "insufficient permissions: list ssh_key" in str(denied)
        wrong = Sdk.over_http(target.url, secret_key=WRONG_KEY)
        assert (await refused(wrong.hosts.list_servers)).status_code == 401
        missing = await refused(lambda: target.sdk.hosts.reboot_server(server_id=UNKNOWN))
        assert missing.response.json()["resource_id"] == UNKNOWN

        fault = {"kind": "gateway", "status": 502, "path": "*/servers"}
        await asyncio.to_thread(posted, f"{target.url}/sim/faults", fault)
        # The SDK decodes every error as JSON.
        with pytest.raises(requests.JSONDecodeError):
            await asyncio.to_thread(target.sdk.hosts.list_servers)
        fault = {"kind": "latency", "seconds": 60}
        await asyncio.to_thread(posted, f"{target.url}/sim/faults", fault)
        with pytest.raises(requests.Timeout):
            await asyncio.to_thread(requests.get, target.url, timeout=0.3)
        fault = {"kind": "rate_limit", "seconds": 7}
        await asyncio.to_thread(posted, f"{target.url}/sim/faults", fault)
        limited = await refused(target.sdk.hosts.list_servers)
        assert limited.response.json()["type"] == "too_many_requests"
        assert limited.response.headers["retry-after"] == "7"


async def test_servers_are_macs_behind_ssh_that_a_reinstallation_wipes(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with started(tmp_path, "--servers", "2") as target:
        sdk = target.sdk
        first, second = (await asyncio.to_thread(sdk.hosts.list_servers)).servers
        assert first.ip != second.ip
        seal = f"{target.url}/sim/servers/{first.id}/seal"
        await asyncio.to_thread(posted, seal, {"sudo_password": "<sealed>"})
        first = await asyncio.to_thread(sdk.hosts.get_server, server_id=first.id)
        assert first.sudo_password == "<sealed>"
        password = unquote(urlsplit(first.vnc_url).password or "")
        assert "26.3" in await output_of(
            target, first, "sw_vers; touch left-over", password=password
        )

        public = key.export_public_key().decode().strip()
        await asyncio.to_thread(sdk.iam.create_ssh_key, name="fleet", public_key=public)
        with pytest.raises(asyncssh.PermissionDenied):
            await output_of(target, first, "true", client_keys=[key])
        await asyncio.to_thread(sdk.hosts.reboot_server, server_id=second.id)
        reinstalled = await asyncio.to_thread(
            sdk.hosts.reinstall_server, server_id=first.id, enable_kext=False
        )
        assert reinstalled.status == "reinstalling"
        first = await until_ready(sdk, first.id)

        assert await output_of(target, first, "ls", client_keys=[key]) == "Library"
        with pytest.raises(asyncssh.PermissionDenied):
            await output_of(target, first, "true", password=password)
        await until_ready(sdk, second.id)


async def test_restart_keeps_the_key_and_installs_the_macs_again(tmp_path: Path) -> None:
    async with started(tmp_path, "--servers", "1") as target:
        key = target.key
        [server] = (await asyncio.to_thread(target.sdk.hosts.list_servers)).servers
        await output_of(target, server, "touch left-over", password=server.sudo_password)

    async with started(tmp_path, "--servers", "1") as target:
        assert target.key == key
        [server] = (await asyncio.to_thread(target.sdk.hosts.list_servers)).servers
        assert await output_of(target, server, "ls", password=server.sudo_password) == "Library"
        added = await asyncio.to_thread(posted, f"{target.url}/sim/servers", {"count": 1})
        assert [each["name"] for each in added["servers"]] == ["tuist-pool-2"]
        assert key not in target.screen
    assert stat.S_IMODE((tmp_path / "secret-key").stat().st_mode) == 0o600
    assert [each.name for each in sorted((tmp_path / "macs").iterdir())] == ["mac-1", "mac-2"]


async def test_saved_state_keeps_servers_keys_and_disks_over_a_restart(tmp_path: Path) -> None:
    network = IPv4Network("127.31.7.0/24")
    settings = sim_scaleway.Settings(
        listen=Address("127.0.0.1", 0),
        root=tmp_path / "macs",
        secret_key_file=tmp_path / "secret-key",
        state_file=tmp_path / "state.json",
        servers=2,
        builders=1,
        builder_type="M4-M",
        ssh_port=0,
        network=network,
    )
    async with sim_scaleway.served(settings) as (scaleway, served):
        first, builder = served.servers
        assert IPv4Address(first.ip) in network
        scaleway.rename(first, "mac-a")
        scaleway.macs.host(first.id).mac.files.write("/opt/kept", b"")  # type: ignore[attr-defined]
        # Interrupted: the disk of the builder is not what its record says.
        scaleway.reinstall(builder, None)
    assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == 0o600

    more = dataclasses.replace(settings, servers=3)
    async with sim_scaleway.served(more) as (scaleway, served):
        again, reinstalled, added = served.servers

        assert (again.id, again.name, again.password) == (first.id, "mac-a", first.password)
        assert again.status == "ready"
        assert scaleway.macs.host(first.id).mac.files.exists("/opt/kept")  # type: ignore[attr-defined]
        assert (reinstalled.id, reinstalled.is_builder) == (builder.id, True)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while reinstalled.status != "ready":
                await asyncio.sleep(0.05)
        assert reinstalled.password != builder.password
        assert (added.is_builder, added.type) == (False, "M2-L")
        assert len({each.ip for each in served.servers}) == 3


async def test_last_servers_are_builders_of_another_type(tmp_path: Path) -> None:
    flags = ("--servers", "2", "--builders", "1", "--builder-type", "M4-M")
    async with started(tmp_path, *flags) as target:
        runner, builder = (await asyncio.to_thread(target.sdk.hosts.list_servers)).servers

        assert [runner.type_, builder.type_] == ["M2-L", "M4-M"]
        assert "builder        tuist-pool-2 M4-M" in target.screen
        found = "ls -d /Applications/Xcode.app /opt/homebrew/bin/brew"
        assert (
            len((await output_of(target, builder, found, password=builder.sudo_password)).split())
            == 2
        )
        assert not await output_of(
            target, runner, f"{found} || true", password=runner.sudo_password
        )


async def test_port_in_use_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server((str(ssh_macs.NETWORK[1]), 0)) as other:
        settings = sim_scaleway.Settings(
            listen=Address("127.0.0.1", 0),
            root=tmp_path / "macs",
            secret_key_file=tmp_path / "secret-key",
            servers=1,
            ssh_port=other.getsockname()[1],
        )

        with pytest.raises(BadConfiguration, match="tuist-pool-1 cannot be served"):
            async with sim_scaleway.served(settings):
                pytest.fail("it serves")
