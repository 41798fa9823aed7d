"""Bare Macs behind SSH that are bootstrapped as Nodes of a real server, and a comparable description of their state."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bramley.api.names import host as places
from bramley.app import bootstrapped_macs, sim_mac
from bramley.app.agent_bundle.agent_archives import AgentArchives
from bramley.app.bootstrapped_macs import AgentArtifacts, Fleet
from bramley.app.listen_address import Address
from bramley.app.up import Progress
from bramley.base.clock import SystemClock
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.host.ssh import SshConnection
from bramley.host.step import Step
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.sim.macos.state import persistent_state
from bramley.sim.ssh import tart_bundle
from bramley.sim.ssh.server import SimulatedHost

PASSWORD = "correct horse battery"
# Files that the agent and its VMs write while they run.
RUNTIME = ("/private/var/log/", "/private/var/lib/tart-kubelet/", "/private/var/lib/tart-userdata/",
           "/private/var/lib/tart-vnc-control/", "/Users/m1/.tart/", "/private/var/run/", "/private/tmp/")  # fmt: skip
# Secrets, and files with times: only their existence, owner and mode are comparable.
INCOMPARABLE = ("/private/etc/ssh/ssh_host_ed25519_key", "/private/etc/tart-kubelet/kubeconfig",
       "/private/var/db/tart-kubelet/kubeconfig.json", "/private/var/db/tart-kubelet/local-network-boot",
       "/private/var/db/tart-kubelet/applied.json")  # fmt: skip


@dataclass(frozen=True)
class Mac:
    """One Mac, the steps that make it a Node, and the fleet of its server."""

    served: SimulatedHost
    fleet: Fleet
    steps: list[Step]
    name: str

    def connected(self) -> AbstractAsyncContextManager[SshConnection]:
        return self.fleet.connected(self.served, self.name)

    def with_artifact(self, name: str, artifact: Artifact) -> list[Step]:
        """Return the steps with another artifact for one of them."""
        return [
            replace(step, artifact=artifact) if step.name == name else step  # type: ignore[type-var]
            for step in self.steps
        ]

    def agent(self) -> int:
        """Return the agent's process id on the Mac."""
        return int(self.served.mac.state["launchd"]["jobs"]["system/dev.tuist.tart-kubelet"]["pid"])

    def stamps(self) -> dict[str, Any]:
        stamps: dict[str, Any] = json.loads(self.served.mac.files.text(places.STAMPS))
        return stamps


@dataclass(frozen=True)
class Cluster:
    """A server, and the archives of all its Macs: built once, because sources may change while tests run."""

    kubeconfig: Path
    archives: AgentArchives

    async def artifacts(self, folder: Path) -> AgentArtifacts:
        store, tart = ArtifactStore(), folder / "tart.tar.gz"
        tart.write_bytes(tart_bundle.archive())
        return AgentArtifacts(
            store,
            tart=await store.load(tart, name="tart", version=tart_bundle.VERSION),
            interpreter=await bootstrapped_macs._add(store, self.archives.interpreter),
            agent=await bootstrapped_macs._add(store, self.archives.code),
        )


@asynccontextmanager
async def bare(
    cluster: Cluster, root: Path, on_progress: Callable[[Progress], None]
) -> AsyncIterator[Mac]:
    """Start a bare Mac for a server; the name of its folder is that of its Node."""
    found, clock = config_loader.load(cluster.kubeconfig), SystemClock()
    password = root.with_name("password")
    password.write_text(PASSWORD)
    settings = sim_mac.Settings(
        root=root, listen=Address("127.0.0.1", 0), password_file=password, boot_seconds=2.0
    )
    async with Client(HttpTransport(found), clock=clock) as kube:
        artifacts = await cluster.artifacts(root.parent)
        fleet = Fleet(kube, found, artifacts, clock, on_progress)
        async with sim_mac.host(settings) as served:
            bootstrapped_macs._write_tart_script(served)
            yield Mac(served, fleet, await fleet.steps(served, root.name), root.name)


def newer_agent(artifact: Artifact, folder: Path) -> tuple[Path, str]:
    """Build another release of the agent, with the same code and another version, and return its path and version."""
    version = f"0.2.0+{hashlib.sha256(b'newer').hexdigest()[:12]}"
    content = gzip.decompress(artifact.path.read_bytes())
    path = folder / f"{version}.tar.gz"
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(content)) as old, tarfile.open(fileobj=packed, mode="w") as new:  # fmt: skip
        for member in old:
            file = old.extractfile(member) if member.isreg() else None
            if member.name == "manifest.json":
                text = file.read().replace(artifact.version.encode(), version.encode())  # type: ignore[union-attr]
                member.size, file = len(text), io.BytesIO(text)
            new.addfile(member, file)
    path.write_bytes(gzip.compress(packed.getvalue(), compresslevel=1))
    return path, version


def describe(mac: Mac) -> dict[str, Any]:
    """Return the state of a Mac in a form that is comparable with another: without runtime files, logs and unique values."""
    one = mac.served.mac
    text = json.dumps(
        persistent_state({key: value for key, value in one.state.items() if key != "owners"})
    )
    # Agents listen on free ports.
    state = json.loads(re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text.replace(mac.name, "NAME")))
    # Disks of VMs are large, so these files are excluded before they are read.
    files = {path: facts for path, facts in one.files.facts() if not path.startswith(RUNTIME)}
    described = {path: _describe_file(mac, path, facts) for path, facts in files.items()}
    return {"files": described, "state": state, "stamped": sorted(mac.stamps())}


def differing(one: Any, other: Any) -> Any:
    """Return the differences of two descriptions; None if there are none."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return None if one == other else (one, other)
    names = sorted({*one, *other})
    found = {name: differing(one.get(name), other.get(name)) for name in names}
    return {name: each for name, each in found.items() if each} or None


def _describe_file(mac: Mac, path: str, facts: os.stat_result) -> list[str]:
    description = mac.served.mac.describe_file(path, facts)
    if path in INCOMPARABLE:
        return description[:-1]
    content = (mac.served.mac.files.read(path) or b"") if description[0] == "file" else b""
    if mac.name.encode() not in content:
        return description
    content = re.sub(rb"127\.0\.0\.1:\d+", b"ADDRESS", content.replace(mac.name.encode(), b"NAME"))
    return [*description[:-1], hashlib.sha256(content).hexdigest()]
