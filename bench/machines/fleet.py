"""The fleet of the benchmark: the names of its Macs, the two releases of its agent, and the configuration of its hosts."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import msgspec

from bramley.api.names import machines
from bramley.base.secret import Secret
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.host.spec import MacSpec
from bramley.kube.tls import Trust
from bramley.machines import host_configuration
from bramley.machines.host_configuration import Artifacts, HostDefaults, HostSecrets
from bramley.machines.host_leases import Holder
from bramley.machines.mac import Mac
from bramley.sim.macos.fresh_install import Settings
from tests.unit.host.steps import fixtures

NAMESPACE = "default"
FLEET = "fleet-a"
NETWORK = IPv4Network("127.31.0.0/16")
# Nothing takes longer in the model than it takes to compute.
FAST = Settings(login_seconds=0.0, boot_seconds=0.0, bootout_seconds=0.0)
OLD, NEW = "old", "new"
_VERSIONS = {
    OLD: (fixtures.AGENT, fixtures.PYTHON),
    NEW: (fixtures.NEWER_AGENT, fixtures.NEWER_PYTHON),
}
_TART = "2.32.1"
_BLOCK = 1 << 20


class HostRecord(msgspec.Struct, frozen=True):
    """One rented host, as the processes of its Mac know it."""

    name: str
    id: str
    address: str

    @property
    def mac(self) -> Mac:
        """Return the Mac, as the controller derives it from its machine."""
        return Mac(
            holder=Holder(NAMESPACE, self.name, ""),
            provider_id=machines.provider_id(machines.DEFAULT_ZONE, self.id),
            address=self.address,
            user=machines.DEFAULT_SSH_USER,
            fleet=FLEET,
        )


def address(number: int) -> str:
    """Return the loopback address of a host."""
    return str(IPv4Address(NETWORK[number + 1]))


def write_hosts(folder: Path, hosts: list[HostRecord]) -> None:
    """Write the hosts for other processes."""
    (folder / "hosts.json").write_bytes(msgspec.json.encode(hosts))


def read_hosts(folder: Path) -> list[HostRecord]:
    """Return the hosts."""
    return msgspec.json.decode((folder / "hosts.json").read_bytes(), type=list[HostRecord])


@dataclass(frozen=True, slots=True)
class Releases:
    """Two releases of interpreter and agent in a folder; the archives of the new one have random bytes behind their content."""

    folder: Path

    def write(self, size: int) -> None:
        """Write all archives; those of the new release have this size together."""
        fixtures.tart(self.folder, _TART)
        rng = random.Random(0)
        for release, (agent, python) in _VERSIONS.items():
            fixtures.interpreter(self.folder, python)
            fixtures.agent(self.folder, agent, python=python)
            for path in self.paths(release) if release == NEW else ():
                # tar reads up to the end of the archive and ignores the rest of the file.
                _append(path, size // 2, rng)

    def paths(self, release: str) -> tuple[Path, Path]:
        """Return the files of the interpreter and of the agent."""
        agent, python = _VERSIONS[release]
        return self.folder / f"python-{python}", self.folder / f"tart-kubelet-{agent}"

    async def defaults(self, release: str, store: ArtifactStore) -> HostDefaults:
        """Return the configuration of all hosts with a release."""
        agent, python = _VERSIONS[release]

        async def load(name: str, version: str) -> Artifact:
            path = self.folder / f"{name}-{version}"
            return await store.load(path, name=name, version=version)

        artifacts = Artifacts(
            store=store,
            tart=await load("tart", _TART),
            interpreter=await load("python", python),
            agent=await load("tart-kubelet", agent),
        )
        server = "https://api.example:6443"
        return HostDefaults(artifacts=artifacts, server=server, trust=Trust(authorities=None))


def _append(path: Path, size: int, rng: random.Random) -> None:
    with path.open("ab") as file:
        missing = size - file.tell()
        for begin in range(0, missing, _BLOCK):
            file.write(rng.randbytes(min(_BLOCK, missing - begin)))


def fingerprint(host: HostRecord, defaults: HostDefaults) -> str:
    """Return the hash of the configuration of a host."""
    return host_configuration.fingerprint(host.mac, defaults, logins=None, key=b"")


def specification(host: HostRecord, defaults: HostDefaults) -> MacSpec:
    """Return the specification that a host was bootstrapped with."""
    issued = int(time.time())
    token = fixtures.agent_kubeconfig(issued=issued, node=host.name)
    secrets = HostSecrets(password=Secret(FAST.password), kubeconfig=token)
    return host_configuration.mac_spec(host.mac, defaults, secrets)
