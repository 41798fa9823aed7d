"""Bare Macs behind SSH that are bootstrapped as Nodes of a real server, and a comparable description of their state."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import socket
import tarfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bramley.access import identity, kubeconfig
from bramley.api.names import host as places
from bramley.api.names import labels
from bramley.app import macs, sample_images, sim_mac, sim_scaleway
from bramley.app.agent_bundle.agent_archives import AgentArchives
from bramley.app.agent_bundle.archive import Archive
from bramley.app.listen_address import Address
from bramley.base.clock import Clock, SystemClock
from bramley.base.secret import Secret
from bramley.host import sequence, ssh
from bramley.host.agent_daemon import AgentJob
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.host.spec import MacSpec
from bramley.host.ssh import SshConnection
from bramley.host.step import Step
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig
from bramley.kube.http import HttpTransport
from bramley.sim.macos.state import persistent_state
from bramley.sim.ssh import tart_bundle
from bramley.sim.ssh.server import SimulatedHost
from tests.process.bootstrap.shared_loop import wait_until

PASSWORD = "correct horse battery"
USER = "m1"
LOOPBACK = "127.0.0.1"
# Files that the agent and its VMs write while they run.
RUNTIME = ("/private/var/log/", "/private/var/lib/tart-kubelet/", "/private/var/lib/tart-userdata/",
           "/private/var/lib/tart-vnc-control/", "/Users/m1/.tart/", "/private/var/run/", "/private/tmp/")  # fmt: skip
# Secrets, and files with times: only their existence, owner and mode are comparable.
INCOMPARABLE = ("/private/etc/ssh/ssh_host_ed25519_key", "/private/etc/tart-kubelet/kubeconfig",
       "/private/var/db/tart-kubelet/kubeconfig.json", "/private/var/db/tart-kubelet/local-network-boot",
       "/private/var/db/tart-kubelet/applied.json")  # fmt: skip


@dataclass(frozen=True)
class AgentArtifacts:
    """The files that are streamed to every Mac."""

    store: ArtifactStore
    tart: Artifact
    interpreter: Artifact
    agent: Artifact


@dataclass(frozen=True)
class Fleet:
    """What the bootstraps of all Macs share."""

    kube: Client
    access: ClientConfig
    artifacts: AgentArtifacts
    clock: Clock

    async def steps(self, name: str) -> list[Step]:
        """Return the steps that make one Mac a Node."""
        issued = await identity.create(self.kube, name, expires=timedelta(days=1))
        server = kubeconfig.server_for_agent(self.access, None)
        serving, metrics, health = _free_addresses()
        job = AgentJob(
            node_name=name,
            host_cpu=8,
            host_memory_mb=16_384,
            max_pods=2,
            user=USER,
            node_labels={labels.FLEET: sample_images.FLEET},
            node_ip=LOOPBACK,
            kubelet_bind_address=serving,
            metrics_bind_address=metrics,
            health_bind_address=health,
        )
        trust = self.access.trust
        spec = MacSpec(
            job=job,
            password=Secret(PASSWORD),
            kubeconfig=kubeconfig.render(name, issued.token, server=server, trust=trust),
            client_authority=(trust.authorities or "").encode(),
            tart=self.artifacts.tart,
            interpreter=self.artifacts.interpreter,
            agent=self.artifacts.agent,
        )
        return sequence.steps(spec, clock=self.clock)


def _free_addresses() -> list[str]:
    """Return three addresses for an agent, below the ephemeral ports: it binds them only much later."""
    with contextlib.ExitStack() as sockets:
        found: list[str] = []
        while len(found) < 3:
            port = secrets.choice(range(16_384, 32_768))
            with contextlib.suppress(OSError):
                sockets.enter_context(socket.create_server((LOOPBACK, port)))
                found.append(f"{LOOPBACK}:{port}")
    return found


@dataclass(frozen=True)
class Mac:
    """One Mac, the steps that make it a Node, and the fleet of its server."""

    served: SimulatedHost
    fleet: Fleet
    steps: list[Step]
    name: str

    def connected(self) -> AbstractAsyncContextManager[SshConnection]:
        """Connect to it as its user."""
        target = ssh.Target(
            host=LOOPBACK,
            port=self.served.port,
            user=USER,
            credentials=ssh.Credentials(password=Secret(PASSWORD)),
            name=self.name,
        )
        return ssh.open(target, clock=self.fleet.clock, artifacts=self.fleet.artifacts.store)

    async def until_ready(self, since: datetime) -> None:
        """Wait until its Node is Ready by a heartbeat after a time."""
        await wait_until(lambda: macs.is_ready(self.fleet.kube, self.name, since))

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
            interpreter=await _add(store, self.archives.interpreter),
            agent=await _add(store, self.archives.code),
        )


async def _add(store: ArtifactStore, archive: Archive) -> Artifact:
    manifest = archive.manifest
    return await store.load(archive.path, name=manifest.name, version=manifest.version)


@asynccontextmanager
async def bare(cluster: Cluster, root: Path) -> AsyncIterator[Mac]:
    """Start a bare Mac for a server; the name of its folder is that of its Node."""
    found, clock = config_loader.load(cluster.kubeconfig), SystemClock()
    password = root.with_name("password")
    password.write_text(PASSWORD)
    settings = sim_mac.Settings(
        root=root, listen=Address(LOOPBACK, 0), password_file=password, boot_seconds=2.0
    )
    async with Client(HttpTransport(found), clock=clock) as kube:
        artifacts = await cluster.artifacts(root.parent)
        fleet = Fleet(kube, found, artifacts, clock)
        async with sim_mac.host(settings) as served:
            sim_scaleway.write_tart_settings(served, sample_images.SIMULATED_TART)
            yield Mac(served, fleet, await fleet.steps(root.name), root.name)


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
