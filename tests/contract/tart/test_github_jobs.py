"""Guests whose configuration names a simulated GitHub: their runners run its jobs, as processes and under virtual time."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from bramley.app.listen_address import Address, bind, bound_address
from bramley.app.sim_github import serving
from bramley.base.clock import SystemClock
from bramley.kube.in_process import InProcessTransport
from bramley.kube.transport import Request
from bramley.sim.github.application import application
from bramley.sim.github.github import Settings, SimulatedGitHub
from bramley.sim.github.records import Job, Runner
from bramley.sim.tart.effects import HttpAnswer
from bramley.sim.tart.in_process import HttpHandler
from tests import virtual_time
from tests.contract.tart.guest_scripts import guest, reported, shares
from tests.contract.tart.targets import Started, Tart, VirtualTimeDriver, both
from tests.dispatch_peer import DispatchPeer
from tests.github_peer import ACME, APP, simulated_github

TOKEN = "token.of.one"
DEADLINE = timedelta(days=1)


@dataclass
class World:
    """A simulated GitHub, the endpoint that hands out its configurations, and the VM `one`."""

    tart: Tart
    github: SimulatedGitHub
    peer: DispatchPeer
    words: tuple[str, ...]

    def queue_job(self, seconds: float, **fields: Any) -> Job:
        repository = self.github.accounts[APP.owner].repositories[APP.name]
        duration = timedelta(seconds=seconds)
        return self.github.actions.queue_job(
            repository, labels=["macos"], duration=duration, **fields
        )

    def register(self) -> Runner:
        """Register a runner whose configuration the VM gets when it polls."""
        actions = self.github.actions
        runner = actions.register(f"/orgs/{ACME.login}", "r-1", ["macos"], 1)
        self.peer.jobs["one"] = actions.jit_config(runner)
        return runner

    async def start(self) -> Started:
        return await self.tart.running("one", *self.words)


@contextlib.asynccontextmanager
async def world(tart: Tart, *, variables: str = "", **script: Any) -> AsyncIterator[World]:
    guest(tart, **script)
    await tart.a_vm()
    words = shares(tart)
    peer = DispatchPeer(authenticate={TOKEN: "one"}.get)
    async with contextlib.AsyncExitStack() as stack:
        if isinstance(tart.driver, VirtualTimeDriver):
            github = simulated_github(virtual_time.clock(), Settings(base_url="http://github"))
            url = "http://peer/api/internal/runners/dispatch"
            tart.driver.mac.tart.http = routed(github, peer)
        else:
            loopback = Address("127.0.0.1", 0)
            bound = bind(loopback)
            base_url = f"http://{bound_address(loopback, bound)}"
            github = simulated_github(SystemClock(), Settings(base_url=base_url))
            await stack.enter_async_context(serving(application(github), bound))
            url = stack.enter_context(peer.serve())
        env = tart.home.parent / "shares/env"
        (env / "sa_token").write_text(TOKEN)
        (env / "tuist.env").write_text(f"TUIST_RUNNER_DISPATCH_URL={url}\n{variables}")
        yield World(tart, github, peer, words)


def routed(github: SimulatedGitHub, peer: DispatchPeer) -> HttpHandler:
    """Return the network of the guests: the simulated GitHub and the endpoint."""
    transport = InProcessTransport(application(github))

    async def answer(method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        parts = urlsplit(url)
        if parts.netloc != "github":
            return HttpAnswer(*peer.answer(method, url, headers, body))
        response = await transport.send(Request(method, parts.path, body=body, deadline=DEADLINE))
        return HttpAnswer(response.status, response.body, response.headers)

    return answer


@both
async def test_guest_runs_a_job_of_github(tart: Tart) -> None:
    async with world(tart, code=7, lines=["scripted"]) as given:
        job = given.queue_job(2, name="unit tests", outcome="failure")
        given.register()
        await (await given.start()).end()

    assert (job.status, job.conclusion, job.runner_name) == ("completed", "failure", "r-1")
    # A failed workflow is no failure of its runner.
    assert reported(tart, "runner-rc") == "0\n"
    lines = reported(tart, "runner.log").splitlines()
    assert lines[-4:-1] == [
        "Listening for jobs",
        "Running job unit tests",
        "Job unit tests ended after 2 s: failure",
    ]


@both
async def test_runner_waits_for_a_job_and_sees_its_cancellation(tart: Tart) -> None:
    async with world(tart) as given:
        runner = given.register()
        running = await given.start()
        await tart.until(lambda: runner.is_online)
        job = given.queue_job(100_000)
        await tart.until(lambda: "Running job" in reported(tart, "runner.log"))
        given.github.actions.cancel_job(job)
        await running.end()

    assert reported(tart, "runner-rc") == "0\n"
    assert "Job build ended after" in reported(tart, "runner.log")
    assert "s: cancelled\n" in reported(tart, "runner.log")


@both
async def test_refused_configuration_fails_the_guest(tart: Tart) -> None:
    async with world(tart) as given:
        given.github.actions.remove(given.register())
        await (await given.start()).end()

    assert reported(tart, "runner-rc") == "1\n"
    assert "GitHub refused the runner with status 401\n" in reported(tart, "runner.log")


@both
async def test_removed_runner_fails_the_guest(tart: Tart) -> None:
    async with world(tart) as given:
        runner = given.register()
        running = await given.start()
        await tart.until(lambda: runner.is_online)
        given.github.actions.remove(runner)
        await running.end()

    assert reported(tart, "runner-rc") == "1\n"
    assert "The runner was removed from GitHub\n" in reported(tart, "runner.log")


@both
async def test_vm_that_is_powered_off_is_a_lost_runner(tart: Tart) -> None:
    async with world(tart) as given:
        job = given.queue_job(100_000)
        runner = given.register()
        running = await given.start()
        await tart.until(lambda: runner.is_connected)
        running.send(signal.SIGINT)
        await running.end()
        await tart.until(lambda: not runner.is_online)

    assert job.status == "in_progress"


@both
async def test_idle_runner_of_github_is_terminated(tart: Tart) -> None:
    idle = "TUIST_RUNNER_IDLE_TIMEOUT_SECONDS=100\n"
    async with world(tart, variables=idle) as given:
        runner = given.register()
        await (await given.start()).end()
        await tart.until(lambda: not runner.is_online)

    assert runner.was_online
    assert reported(tart, "runner-rc") == "0\n"
    assert "Terminating runner that got no job\n" in reported(tart, "runner.log")


@both
async def test_guest_with_a_job_of_github_shuts_down_on_request(tart: Tart) -> None:
    async with world(tart) as given:
        given.queue_job(100_000)
        runner = given.register()
        running = await given.start()
        await tart.until(lambda: runner.is_connected)
        await tart.done("exec", "one", "sudo", "shutdown", "-h", "now")
        await running.end()
        await tart.until(lambda: not runner.is_online)

    assert reported(tart, "runner-rc") == "143\n"
