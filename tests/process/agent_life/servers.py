"""The two control planes that agents are put on: ours in a process of its own, and the real one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bramley.access import identity
from bramley.kube import config_loader
from tests.process.serving.processes import BRAMLEY, PATIENCE, running
from tools.kube.control_plane import RealCluster


@dataclass(frozen=True, slots=True)
class Server:
    """A control plane: the administrator's way in, and the authority of those who may ask agents for logs."""

    name: str
    kubeconfig: Path
    authority: Path


@contextmanager
def embedded(folder: Path) -> Iterator[Server]:
    """Run ours."""
    with running(folder) as ours:
        server = Server("embedded", ours.kubeconfig, ours.folder / "tls" / "ca.crt")
        with _keeping(server, folder):
            yield server


@contextmanager
def real(cluster: RealCluster, folder: Path) -> Iterator[Server]:
    """Use the real one, which runs already."""
    server = Server("real", cluster.kubeconfig, cluster.pki / "ca.crt")
    with _keeping(server, folder):
        yield server


@contextmanager
def _keeping(server: Server, folder: Path) -> Iterator[None]:
    """Let agents have the tokens of the Pods on their Nodes, as long as those are there."""
    asyncio.run(_share(server))
    command = [str(BRAMLEY), "agent-access", "controller", "--kubeconfig", str(server.kubeconfig)]
    with (folder / "keep.log").open("wb") as log:
        keeper = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        keeper.send_signal(signal.SIGTERM)
        keeper.wait(PATIENCE)


async def _share(server: Server) -> None:
    async with config_loader.connect(server.kubeconfig, environment={}) as kube:
        await identity.ensure_shared(kube)
