"""One Mac that its team owns, behind SSH, and `bramley machines` without an account of a provider.

The cluster is prepared by the commands of the guide for the provider, which runs with the permissions of its example and no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bramley.api.names import host as places
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.ssh import tart_bundle
from bramley.sim.ssh.server import SimulatedHost
from tests.cluster.walkthrough import Step, Walk, steps
from tests.process.runners.fleet import TIMINGS
from tests.process.serving.processes import (  # fmt: skip
    BRAMLEY,
    TIMEOUT_SECONDS,
    clean_environment,
    running,
)
from tools.agent_bundle import linux

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs/how-to/add-your-own-mac.md"
PROVIDER_GUIDE = ROOT / "docs/how-to/run-the-machine-provider.md"
IMAGE = "ghcr.io/example/macos-runner:latest"
ACCOUNT = "bramley-machines"
NAME, USER, PASSWORD = "mac-1", "admin", "correct horse battery"
SECONDS = 300.0
TART = {
    "host": {"disk_bytes": 460_000_000_000, "lease_seconds": 600},
    "timings": TIMINGS,
    "images": {
        IMAGE: {
            "size_bytes": 1_000_000_000,
            "compressed_bytes": 1_000_000,
            "guest": {"work": 3600.0, "lines": ["the guest is up"]},
        }
    },
}


@dataclass(slots=True)
class Stage:
    """The processes, and kubectl as a person uses it."""

    kubeconfig: Path
    mac: SimulatedHost
    folder: Path
    environment: dict[str, str]
    manager: subprocess.Popen[bytes] | None = None
    _flags: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """Return the log of the manager."""
        return self.folder / "machines.log"

    async def run_step(self, step: Step, *, folder: Path | None = None) -> None:
        """Run a command of a document, and check what it prints."""
        walk = Walk(folder or self.folder, self.environment, self.folder, SECONDS)
        with contextlib.ExitStack() as background:
            await asyncio.to_thread(walk.run_step, step, background)

    async def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl, and return what it prints."""
        done = await asyncio.to_thread(
            subprocess.run,
            ["kubectl", *words],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    async def get(self, *words: str) -> dict[str, Any]:
        """Return an object."""
        found: dict[str, Any] = json.loads(await self.kubectl("get", *words, "-o", "json"))
        return found

    async def names(self, *words: str) -> list[str]:
        """Return the names of objects of a kind."""
        return [each["metadata"]["name"] for each in (await self.get(*words))["items"]]

    async def condition(self, type: str, name: str = NAME) -> dict[str, Any]:
        """Return a condition of the MacHost; an empty one if it has none."""
        status = (await self.get("machost", name)).get("status", {})
        return next((each for each in status.get("conditions", ()) if each["type"] == type), {})

    async def until_not_ready(self, reason: str, text: str, name: str = NAME) -> None:
        """Wait until the MacHost is not Ready for this reason, with a message and an event that contain a text."""

        async def is_reported() -> bool:
            found = await self.condition("Ready", name)
            return found.get("reason") == reason and text in found["message"]

        await self.until(is_reported, what=f"{reason}: {text}")

        async def has_event() -> bool:
            events = await self.kubectl("events", "--for", f"machost/{name}")
            return any(reason in line and text in line for line in events.splitlines())

        await self.until(has_event, what=f"an event {reason}: {text}")

    async def until(self, condition: Callable[[], Any], *, what: str) -> None:
        """Wait until a condition is true."""
        deadline = time.monotonic() + SECONDS
        while not await condition():
            tail = self.log.read_text(errors="replace")[-4000:]
            assert self.manager is None or self.manager.poll() is None, tail
            assert time.monotonic() < deadline, f"timed out waiting for {what}\n{tail}"
            await asyncio.sleep(0.2)

    def start(self) -> None:
        """Start the manager."""
        with self.log.open("ab") as log:
            self.manager = subprocess.Popen(
                [BRAMLEY, "machines", *self._flags],
                env=clean_environment(),
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill the manager with SIGKILL."""
        if self.manager is not None:
            self.manager.kill()
            self.manager.wait(TIMEOUT_SECONDS)
        self.manager = None


def guide(mac: SimulatedHost) -> dict[str, Step]:
    """Return the commands of the guide by their verb, with the address of this Mac."""
    address = f"{mac.listen}\n  port: {mac.port}"
    text = GUIDE.read_text().replace("10.0.0.5", address)
    found = {each.command.split()[1]: each for each in steps(text)}
    assert list(found) == ["create", "apply", "drain", "delete"]
    return found


@asynccontextmanager
async def an_embedded_stage(folder: Path, kubectl: Path) -> AsyncIterator[Stage]:
    """Run the embedded API as well."""
    with running(folder / "api") as server:
        async with a_stage(server.kubeconfig, folder, kubectl) as stage:
            yield stage


@asynccontextmanager
async def a_stage(kubeconfig: Path, folder: Path, kubectl: Path) -> AsyncIterator[Stage]:
    """Prepare a cluster and a bare Mac, and start the manager."""
    async with AsyncExitStack() as stack:
        # An own address: agents listen on the ports of a real Mac.
        random = secrets.SystemRandom()
        address = f"127.{random.randrange(64, 128)}.{random.randrange(256)}.{random.randrange(1, 255)}"  # fmt: skip
        settings = Settings(user=USER, password=PASSWORD, boot_seconds=1.0, login_seconds=0.5)
        mac = await stack.enter_async_context(
            SimulatedHost(folder / "mac", listen=address, settings=settings)
        )
        _write_images(mac)
        path = os.pathsep.join([str(kubectl.parent), str(BRAMLEY.parent), os.environ["PATH"]])
        environment = clean_environment(
            PATH=path, KUBECONFIG=str(kubeconfig), KUBECACHEDIR=str(folder / "kube-cache")
        )
        made = Stage(kubeconfig, mac, folder, environment)
        (folder / "password").write_text(f"{PASSWORD}\n")
        await _prepare(made)
        made._flags = await _flags(made)
        stack.callback(made.kill)
        made.start()
        yield made


def _write_images(mac: SimulatedHost) -> None:
    """Give the Mac's tart a registry with one image."""
    home, owner = f"{places.home(USER)}/.tart", f"{USER}:staff"
    mac.mac.files.make_folder(home, mode=0o700, owner=owner)
    text = json.dumps(TART).encode()
    mac.mac.files.write(f"{home}/sim.json", text, mode=0o600, owner=owner)


async def _prepare(stage: Stage) -> None:
    """Run the commands with which the guide for the provider prepares a cluster."""
    text = PROVIDER_GUIDE.read_text().partition("## Prepare the cluster")[2]
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    await stage.run_step(Step(block[1].strip(), "…", background=False), folder=ROOT)


async def _flags(stage: Stage) -> list[str]:
    """Return the flags of the manager, with a kubeconfig of the ServiceAccount of the example."""
    document = yaml.safe_load(stage.kubeconfig.read_text())
    token = (await stage.kubectl("create", "token", ACCOUNT)).strip()
    document["users"][0]["user"] = {"token": token}
    kubeconfig, tart = stage.folder / "machines.kubeconfig", stage.folder / "tart.tar.gz"
    kubeconfig.write_text(yaml.safe_dump(document))
    kubeconfig.chmod(0o600)
    tart.write_bytes(tart_bundle.archive())
    archives = linux.cached()
    values = {
        "--kubeconfig": kubeconfig,
        "--api-server-url": document["clusters"][0]["cluster"]["server"],
        "--tartkubelet-archive-path": archives.code.path,
        "--tartkubelet-interpreter-path": archives.interpreter.path,
        "--tart-tarball-path": tart,
        "--tart-version": tart_bundle.VERSION,
        "--smoke-image": IMAGE,
        "--metrics-bind-address": "off",
        "--health-probe-bind-address": "off",
    }
    return ["--agent-binds-to-address", *(str(word) for pair in values.items() for word in pair)]
