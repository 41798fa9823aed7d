"""The two control planes that agents run on: ours in a child process, and the real one."""

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
from tests.process.serving.processes import BRAMLEY, TIMEOUT_SECONDS, running
from tools.kube.control_plane import RealCluster


@dataclass(frozen=True, slots=True)
class Server:
    """A control plane: the administrator's kubeconfig, and the certificate authority of the clients of agents."""

    name: str
    kubeconfig: Path
    authority: Path


@contextmanager
def embedded(folder: Path, *flags: str) -> Iterator[Server]:
    """Run our control plane."""
    with running(folder, *flags) as ours:
        server = Server("embedded", ours.kubeconfig, ours.folder / "tls" / "ca.crt")
        with _running_access_controller(server, folder):
            yield server


@contextmanager
def real(cluster: RealCluster, folder: Path) -> Iterator[Server]:
    """Use the real control plane, which runs already."""
    server = Server("real", cluster.kubeconfig, cluster.pki / "ca.crt")
    with _running_access_controller(server, folder):
        yield server


@contextmanager
def _running_access_controller(server: Server, folder: Path) -> Iterator[None]:
    """Run the controller that grants agents the tokens of the Pods on their Nodes."""
    asyncio.run(_share(server))
    command = [str(BRAMLEY), "agent-access", "controller", "--kubeconfig", str(server.kubeconfig)]
    with (folder / "agent-access.log").open("wb") as log:
        controller = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        controller.send_signal(signal.SIGTERM)
        controller.wait(TIMEOUT_SECONDS)


async def _share(server: Server) -> None:
    async with config_loader.connect(server.kubeconfig, environment={}) as kube:
        await identity.ensure_shared(kube)
