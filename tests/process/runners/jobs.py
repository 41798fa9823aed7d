"""Jobs of a simulated GitHub on twelve real agents: webhook, VM, JIT configuration, the job in the guest, the replaced Pod."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bramley.api.names import dispatch as names
from bramley.api.pod import Pod
from bramley.app.listen_address import Address, bind, bound_address
from bramley.app.sim_github import serving
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.github.http import HttpTransport
from bramley.sim.github.application import application
from bramley.sim.github.github import Settings, SimulatedGitHub
from bramley.sim.github.webhooks import Hook
from tests import github_keys
from tests.github_peer import APP, DOTFILES, simulated_github
from tests.process.agent_life.servers import Server
from tests.process.runners.controller import Tenant, running_controller
from tests.process.runners.fleet import MACS, NEW, OLD, TIMEOUT_SECONDS, RunnerFleet, a_fleet
from tests.process.serving.processes import BRAMLEY, clean_environment, held_port

LABEL = "macos"
SECRET = "a webhook secret of tests"
SINGLE = 10
JOB_SECONDS = 1.0


@dataclass(slots=True)
class Work:
    """A fleet whose Pods get the jobs of a simulated GitHub."""

    fleet: RunnerFleet
    github: SimulatedGitHub

    def queue(self, count: int, owner: str = APP.owner, name: str = APP.name) -> None:
        """Queue jobs of one account."""
        repository = self.github.accounts[owner].repositories[name]
        for _ in range(count):
            self.github.actions.queue_job(
                repository, labels=[LABEL], duration=timedelta(seconds=JOB_SECONDS)
            )

    async def until_completed(self) -> None:
        """Wait until every job has ended; two seconds each, or less, on a busy machine."""
        jobs = self.github.actions.jobs
        deadline = time.monotonic() + TIMEOUT_SECONDS + 2 * len(jobs)
        while open_jobs := [job.id for job in jobs.values() if job.status != "completed"]:
            self.fleet.expect_alive()
            assert time.monotonic() < deadline, f"jobs {open_jobs} did not end"
            await asyncio.sleep(0.2)

    def check(self, pods: set[str]) -> None:
        """Check that each job succeeded, and ran on a Pod of the fleet that ran no other one."""
        jobs = list(self.github.actions.jobs.values())
        assert {job.conclusion for job in jobs} == {"success"}
        used = Counter((job.runner_name or "").rpartition("-")[0] for job in jobs)
        assert used.keys() <= pods
        assert used.most_common(1)[0][1] == 1, used
        assert len(pods) >= len(jobs)


@contextmanager
def running_dispatch(fleet: Tenant, folder: Path, port: int, github: str) -> Iterator[None]:
    """Run a dispatch server of the fleet's namespace on this port."""
    key, secret = folder / "app.pem", folder / "webhook-secret"
    key.write_bytes(github_keys.pem(github_keys.rsa_key()))
    secret.write_text(SECRET)
    values = {
        "--listen": f"127.0.0.1:{port}",
        "--kubeconfig": str(fleet.server.kubeconfig),
        "--namespace": fleet.namespace,
        "--database": f"sqlite:///{folder / 'jobs.sqlite'}",
        "--github-api-url": github,
        "--github-app-id": "1",
        "--github-private-key-file": str(key),
        "--webhook-secret-file": str(secret),
        "--metrics-bind-address": "off",
        "--health-probe-bind-address": "off",
    }
    words = [word for pair in values.items() for word in pair]
    with (folder / "dispatch.log").open("wb") as log:
        process = subprocess.Popen(
            [str(BRAMLEY), "dispatch", *words], env=clean_environment(), stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0


@asynccontextmanager
async def running_github(dispatch_url: str) -> AsyncIterator[tuple[SimulatedGitHub, str]]:
    """Serve a simulated GitHub that sends its webhooks to a dispatch server."""
    bound = bind(Address("127.0.0.1", 0))
    url = f"http://{bound_address(Address('127.0.0.1', 0), bound)}"
    async with HttpTransport(dispatch_url) as transport:
        hook = Hook(transport, names.WEBHOOK_PATH, Secret(SECRET))
        settings = Settings(base_url=url, requests_per_hour=1_000_000, picks_randomly=True)
        github = simulated_github(SystemClock(), settings, hook)
        async with github.running(), serving(application(github), bound):
            yield github, url


async def check_jobs(server: Server, folder: Path, *, flood: int = 50) -> None:
    """Run jobs while one account floods the queue and the pool is rolled to another image."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(a_fleet(server, folder, work=JOB_SECONDS))
        port = stack.enter_context(held_port())
        base = f"http://127.0.0.1:{port}"
        github, url = await stack.enter_async_context(running_github(base))
        stack.enter_context(running_dispatch(fleet, folder, port, url))
        stack.enter_context(
            running_controller(fleet, folder / "controller.log", url=base + names.DISPATCH_PATH)
        )
        await fleet.create_pool()
        await fleet.until(
            lambda pool: pool.status.ready_replicas == MACS and pool.status.last_good_image == OLD,
            what="a full pool",
        )
        work, pods = Work(fleet, github), set[str]()
        seeing = asyncio.create_task(_collect(fleet, pods))
        work.queue(flood)
        await fleet.roll_to(NEW)
        for _ in range(SINGLE):
            work.queue(1, DOTFILES.owner, DOTFILES.name)
            await asyncio.sleep(1)
        await work.until_completed()
        await fleet.until(
            lambda pool: pool.status.ready_replicas == MACS and pool.status.last_good_image == NEW,
            what="the end of the roll",
        )
        seeing.cancel()
        work.check(pods)


async def _collect(fleet: RunnerFleet, pods: set[str]) -> None:
    """Record the names of all Pods of the fleet."""
    while True:
        found = await fleet.kube.list(Pod, namespace=fleet.namespace)
        pods |= {pod.name for pod in found.items}
        await asyncio.sleep(0.2)
