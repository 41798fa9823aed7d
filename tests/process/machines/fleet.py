"""Rented Macs of a simulated Scaleway, a simulated GitHub, and the processes of Bramley that make a fleet of them.

`bramley machines` runs with the permissions of examples/machines-rbac.yaml and no others, and is set up as its guide says; the Macs are behind
SSH, and their agents, which it installs, are real.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import TypeVar

import yaml

from bramley.api.cluster_api import Machine
from bramley.api.core import Event, Node
from bramley.api.names import dispatch as dispatch_names
from bramley.api.names import machines as names
from bramley.api.names import secrets as secret_names
from bramley.api.pod import Pod
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.app import sim_scaleway
from bramley.app.listen_address import Address
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.providers import scaleway_account
from bramley.sim.github.github import SimulatedGitHub
from bramley.sim.macos import stand_ins
from bramley.sim.macos.mac import Mac
from bramley.sim.scaleway.records import Server as RentedMac
from bramley.sim.scaleway.scaleway import ACCESS_KEY, SimulatedScaleway
from bramley.sim.scaleway.ssh_macs import SshMacs
from bramley.sim.ssh import tart_bundle
from bramley.sim.ssh.server import SimulatedHost
from tests import github_keys
from tests.contract.cluster_api import targets
from tests.contract.cluster_api.infrastructure import Provider
from tests.contract.cluster_behaviour.targets import eventually
from tests.process.agent_life.servers import Server
from tests.process.machines import manifests
from tests.process.machines.clean_up import clean_up
from tests.process.machines.kubectl import Kubectl
from tests.process.machines.manifests import NAMESPACE, RUNNERS_NAMESPACE
from tests.process.runners.controller import running_controller
from tests.process.runners.fleet import TIMINGS
from tests.process.runners.jobs import running_dispatch, running_github
from tests.process.serving.processes import (
    BRAMLEY,
    TIMEOUT_SECONDS,
    clean_environment,
    held_port,
)
from tests.programs import run_program
from tools.agent_bundle import linux

T = TypeVar("T")
ROOT = Path(__file__).parents[3]
SERVERS = 4
# The time after which a step of a test has failed, on a busy machine.
STEP_SECONDS = 300.0
# The shortest reinstallation at Scaleway then takes a third of a second.
SPEED = 900.0
TART = {
    "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 600},
    "timings": TIMINGS,
    "images": {
        manifests.IMAGE: {
            "size_bytes": 1_000_000_000,
            "compressed_bytes": 1_000_000,
            # A guest without a dispatch endpoint, such as that of a smoke VM, runs until it is deleted.
            "guest": {"work": 3600.0, "lines": ["the guest is up"]},
        }
    },
}


@dataclass(frozen=True, slots=True)
class Plane:
    """A control plane, and whether Cluster API's core manager runs on it."""

    server: Server
    has_core_manager: bool


@dataclass(slots=True)
class Fleet:
    """The control plane, the peers, and the process of the provider."""

    plane: Plane
    kube: Client
    kubectl: Kubectl
    scaleway: SimulatedScaleway
    github: SimulatedGitHub
    folder: Path
    provider: subprocess.Popen[bytes] | None = None
    # The names and the passwords that the rented Macs had at the start.
    pool: dict[str, str] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)

    @property
    def server(self) -> Server:
        """Return the control plane of the runners."""
        return self.plane.server

    @property
    def namespace(self) -> str:
        """Return the namespace of the runners."""
        return RUNNERS_NAMESPACE

    @property
    def log(self) -> Path:
        """Return the log of the provider."""
        return self.folder / "machines.log"

    def host(self, server: RentedMac) -> SimulatedHost:
        """Return the Mac of a server."""
        macs = self.scaleway.macs
        assert isinstance(macs, SshMacs)
        return macs.host(server.id)

    def rented(self, machine: ScalewayAppleSiliconMachine) -> RentedMac:
        """Return the server that a machine has adopted."""
        return self.scaleway.servers[machine.status.server_id]

    def mac(self, machine: ScalewayAppleSiliconMachine) -> Mac:
        """Return the Mac that a machine has adopted."""
        return self.host(self.rented(machine)).mac

    async def machines(self, fleet: str) -> dict[str, ScalewayAppleSiliconMachine]:
        """Return the machines of a fleet by name."""
        found = await self.kube.list(ScalewayAppleSiliconMachine, namespace=NAMESPACE)
        return {each.name: each for each in found.items if each.spec.fleet_name == fleet}

    async def owners(self) -> dict[str, Machine]:
        """Return Cluster API's Machines by the name of their infrastructure."""
        found = (await self.kube.list(Machine, namespace=NAMESPACE)).items
        return {each.spec.infrastructure_ref.name: each for each in found}

    async def nodes(self) -> dict[str, Node]:
        """Return the Nodes of Macs by name."""
        found = (await self.kube.list(Node)).items
        return {
            each.name: each
            for each in found
            if each.spec.provider_id.startswith(names.PROVIDER_ID_SCHEME)
        }

    async def pods(self) -> dict[str, Pod]:
        """Return the Pods of the pool by name."""
        found = (await self.kube.list(Pod, namespace=RUNNERS_NAMESPACE)).items
        return {each.name: each for each in found}

    async def reasons(self, machine: str) -> list[str]:
        """Return the reasons of the events of a machine, each as often as it was reported, in the order of the last report."""
        fields = {"involvedObject.name": machine, "involvedObject.kind": "ScalewayAppleSiliconMachine"}  # fmt: skip
        found = (await self.kube.list(Event, namespace=NAMESPACE, fields=fields)).items
        found.sort(key=lambda each: int(each.metadata.resource_version))
        return [each.reason for each in found for _ in range(max(each.count, 1))]

    async def until(self, condition: Callable[[], Awaitable[T | None]], *, what: str) -> T:
        """Wait until a condition has a true value, and return that."""
        deadline = time.monotonic() + STEP_SECONDS
        while not (found := await condition()):
            assert self.provider is not None
            assert self.provider.poll() is None, self._tail()
            assert time.monotonic() < deadline, f"timed out waiting for {what}\n{self._tail()}"
            await asyncio.sleep(0.2)
        return found

    def problems(self) -> list[str]:
        """Return what the provider has logged about bugs and missing permissions."""
        lines = self.log.read_text().splitlines()
        return [each for each in lines if '"level":"error"' in each or "Forbidden" in each]

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@asynccontextmanager
async def a_fleet(plane: Plane, program: Path, folder: Path) -> AsyncIterator[Fleet]:
    """Run everything but machines: their owner creates them."""
    kubectl = Kubectl(program, plane.server.kubeconfig, folder / "kube-cache")
    async with AsyncExitStack() as stack:
        kube = config_loader.connect(plane.server.kubeconfig, environment={})
        await stack.enter_async_context(kube)
        stack.push_async_callback(clean_up, kube)
        port = stack.enter_context(held_port())
        dispatch = f"http://127.0.0.1:{port}"
        github, github_url = await stack.enter_async_context(running_github(dispatch))
        scaleway, served = await stack.enter_async_context(_scaleway(folder, github_url))
        fleet = Fleet(plane, kube, kubectl, scaleway, github, folder)
        fleet.pool = {each.id: each.name for each in served.servers}
        fleet.passwords = {each.id: each.password for each in served.servers}
        await _install(fleet)
        stack.enter_context(running_dispatch(fleet, folder, port, github_url))
        url = dispatch + dispatch_names.DISPATCH_PATH
        stack.enter_context(running_controller(fleet, folder / "runners.log", url=url))
        await stack.enter_async_context(await _provider(fleet, served, github_url))
        kubeconfig = plane.server.kubeconfig if plane.has_core_manager else None
        cluster = targets.World(kube, NAMESPACE, Provider(kube, NAMESPACE))
        # As in existing installations: the core manager then leaves drains and Nodes to the provider.
        await targets.create_cluster(cluster, kubeconfig, has_control_plane=False)
        yield fleet


@asynccontextmanager
async def _scaleway(
    folder: Path, github_url: str
) -> AsyncIterator[tuple[SimulatedScaleway, sim_scaleway.Served]]:
    settings = sim_scaleway.Settings(
        listen=Address("127.0.0.1", 0),
        root=folder / "macs",
        secret_key_file=folder / "secret-key",
        servers=SERVERS,
        type=manifests.RUNNER_TYPE,
        builders=1,
        builder_type=manifests.BUILDER_TYPE,
        github_url=github_url,
        # Other tests, in other processes, have Macs at the same time.
        network=IPv4Network((127 << 24 | secrets.choice(range(128 << 8, 250 << 8)) << 8, 24)),
        ssh_port=0,
        speed=SPEED,
        tart=TART,
    )
    async with sim_scaleway.served(settings) as served:
        yield served


async def _install(fleet: Fleet) -> None:
    """Prepare the cluster as the guide of the provider says, and create the Secret of the builders' App."""
    definitions = await asyncio.to_thread(run_program, [BRAMLEY, "crds"], check=True)
    await fleet.kubectl("apply", "--server-side", "-f", "-", stdin=definitions.stdout)
    # Small controllers install those of Cluster API a moment after their start.
    await eventually(partial(targets.is_served, fleet.kube, Machine.resource.path()))
    # Not created: other tests of the same server may have left it.
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RUNNERS_NAMESPACE}}
    await fleet.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))
    await fleet.kubectl("apply", "-f", str(ROOT / "examples" / "machines-rbac.yaml"))
    key = fleet.folder / "app.pem"
    key.write_bytes(github_keys.pem(github_keys.rsa_key()))
    installation = fleet.github.accounts[manifests.ORGANISATION].installation_id
    values = (
        f"--from-literal={secret_names.APP_ID}={fleet.github.settings.app_id}",
        f"--from-literal={secret_names.INSTALLATION_ID}={installation}",
        f"--from-file={secret_names.PRIVATE_KEY}={key}",
    )
    await fleet.kubectl("create", "secret", "generic", manifests.APP_SECRET, "-n", NAMESPACE, *values)  # fmt: skip


async def _provider(
    fleet: Fleet, served: sim_scaleway.Served, github_url: str
) -> AbstractAsyncContextManager[None]:
    """Return the context in which the provider runs."""
    folder = fleet.folder
    archives = await asyncio.to_thread(linux.cached)
    tart = folder / "tart.tar.gz"
    tart.write_bytes(tart_bundle.archive())
    kubeconfig = await _service_account(fleet)
    document = yaml.safe_load(kubeconfig.read_text())
    flags = {
        "--kubeconfig": kubeconfig,
        "--secrets-namespace": NAMESPACE,
        "--scaleway-credentials-dir": _credentials(folder, served),
        "--default-adopt-pool-prefix": names.POOL_PREFIX,
        "--api-server-url": document["clusters"][0]["cluster"]["server"],
        "--host-ssh-port": served.ssh_port,
        "--tartkubelet-archive-path": archives.code.path,
        "--tartkubelet-interpreter-path": archives.interpreter.path,
        "--tart-tarball-path": tart,
        "--tart-version": tart_bundle.VERSION,
        "--actions-runner-archives": _runner_archives(folder),
        "--smoke-image": manifests.IMAGE,
        "--github-api-url": github_url,
        "--metrics-bind-address": "off",
        "--health-probe-bind-address": "off",
        "--log-format": "json",
    }
    words = [str(word) for pair in flags.items() for word in pair]
    return _running(fleet, [*words, "--agent-binds-to-address"], served.url)


@asynccontextmanager
async def _running(fleet: Fleet, words: list[str], scaleway_url: str) -> AsyncIterator[None]:
    environment = clean_environment(**{scaleway_account.API_URL: scaleway_url})
    process = fleet.provider = _start(words, environment, fleet.log)
    try:
        yield
    finally:
        process.terminate()
        # The peers, which it may be calling, run on this loop.
        assert await asyncio.to_thread(process.wait, TIMEOUT_SECONDS) == 0, fleet._tail()


def _start(words: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    command = [str(BRAMLEY), "machines", *words]
    with log.open("wb") as out:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=out)


async def _service_account(fleet: Fleet) -> Path:
    """Write a kubeconfig with a token of the provider's ServiceAccount."""
    account = ("bramley-machines", "--namespace", NAMESPACE)
    token = await fleet.kubectl("create", "token", *account, "--duration", "3h")
    document = yaml.safe_load(fleet.plane.server.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token.strip()}
    path = fleet.folder / "machines.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(document))
    return path


def _credentials(folder: Path, served: sim_scaleway.Served) -> Path:
    credentials = folder / "scaleway"
    credentials.mkdir(mode=0o700)
    values = {
        scaleway_account.ACCESS_KEY: ACCESS_KEY,
        scaleway_account.SECRET_KEY: served.settings.secret_key_file.read_text(),
        scaleway_account.PROJECT_ID: served.settings.project_id,
    }
    for name, value in values.items():
        path = credentials / name
        path.touch(mode=0o600)
        path.write_text(value)
    return credentials


def _runner_archives(folder: Path) -> Path:
    """Write the archive of GitHub's runner with its digest."""
    archives = folder / "runners"
    archives.mkdir()
    content = stand_ins.actions_runner(manifests.RUNNER_VERSION)
    archive = archives / f"actions-runner-osx-arm64-{manifests.RUNNER_VERSION}.tar.gz"
    archive.write_bytes(content)
    archive.with_name(f"{archive.name}.sha256").write_text(hashlib.sha256(content).hexdigest())
    return archives
