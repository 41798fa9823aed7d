"""`bramley agent-access controller` on a real cluster: a process that follows Pods with the Roles of their agents."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from bramley.access import identity
from bramley.api.core import Namespace, Pod, ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.names import access
from bramley.api.rbac import Role
from bramley.kube.client import Client
from bramley.kube.config_loader import connect
from tests.unit.access.embedded_api import bind_pod
from tools.kube.control_plane import RealCluster

PROGRAM = "from bramley.cli.main import main; main()"


@contextmanager
def running_controller(kubeconfig: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = ["agent-access", "controller", "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *command]) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(180)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(180):
        while not await condition():
            await asyncio.sleep(0.1)


async def roles(kube: Client, namespace: str, node: str) -> list[str]:
    found = (await kube.list(Role, namespace=namespace)).items
    return [role.name for role in found if role.name == access.role(node)]


async def test_controller_process_adds_and_removes_roles_with_the_pods_of_an_agent(
    real_cluster: RealCluster,
) -> None:
    mark = uuid.uuid4().hex[:6]
    namespace, node = f"kept-{mark}", f"mac-{mark}"
    with running_controller(real_cluster.kubeconfig) as process:
        async with connect(real_cluster.kubeconfig) as kube:
            await kube.create(Namespace(metadata=ObjectMeta(name=namespace)))
            place = ObjectMeta(name="robot", namespace=namespace)
            await kube.create(ServiceAccount(metadata=place))
            await identity.create(kube, node, expires=timedelta(hours=1))

            await bind_pod(kube, "p", node, namespace=namespace, serviceAccountName="robot")
            await until(lambda: has(kube, namespace, node, 1))
            await kube.delete(Pod, "p", namespace=namespace, grace=timedelta())
            await until(lambda: has(kube, namespace, node, 0))

    assert process.returncode == 0


async def has(kube: Client, namespace: str, node: str, count: int) -> bool:
    return len(await roles(kube, namespace, node)) == count
