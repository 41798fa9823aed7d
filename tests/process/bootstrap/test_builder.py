"""A builder over real SSH: its tools, its runner with a process of its own, the same state as in process, and its removal."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.app.listen_address import Address, bind, bound_address
from bramley.app.sim_github import serving
from bramley.base.clock import SystemClock
from bramley.base.errors import CommandFailed
from bramley.base.secret import Secret
from bramley.host import converge, removal, sequence, ssh
from bramley.host.artifacts import ArtifactStore
from bramley.host.commands import Run
from bramley.host.connection import Connection
from bramley.host.ssh import Credentials, Target
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.sim.github.application import application
from bramley.sim.github.github import SimulatedGitHub
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from bramley.sim.ssh.server import SimulatedHost
from tests.github_peer import simulated_github
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import PASSWORD

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is Linux's"),
]
SETTINGS = Settings(xcode=True, homebrew=True, login_seconds=0.0, bootout_seconds=0.0)
TIMEOUT_SECONDS = 60
TARGET = f"gui/501/actions.runner.tuist.{fixtures.NODE}"


def builder_steps(folder: Path, *, token: Secret = fixtures.RUNNER_TOKEN) -> list[Step]:
    names = {"xcode", "builder-tools", "build-environment", "actions-runner"}
    builder = fixtures.builder(folder, token=token)
    planned = sequence.steps(fixtures.builder_spec(folder, builder=builder))
    chosen = [step for step in planned if step.name in names]
    assert len(chosen) == len(names)
    return [fixtures.SUDO, AutoLogin("m1", Secret(PASSWORD)), *chosen]


@asynccontextmanager
async def connected(served: SimulatedHost) -> AsyncIterator[Connection]:
    target = Target(
        host="127.0.0.1",
        port=served.port,
        user="m1",
        credentials=Credentials(password=Secret(PASSWORD)),
        name="mac",
    )
    async with ssh.open(target, clock=SystemClock(), artifacts=ArtifactStore()) as connection:
        yield connection


@dataclass(frozen=True, slots=True)
class Scene:
    """A simulated GitHub over HTTP, and a connection to a Mac that registers its runner there."""

    github: SimulatedGitHub
    mac: Mac
    connection: Connection
    folder: Path

    def steps(self, token: str) -> list[Step]:
        return builder_steps(self.folder, token=Secret(token))

    def registration_token(self) -> str:
        return self.github.access.create_registration_token("/orgs/tuist")[0]

    def runners(self) -> list[tuple[str, bool]]:
        return [(each.name, each.is_online) for each in self.github.actions.runners.values()]

    async def until(self, *expected: tuple[str, bool]) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self.runners() != [*expected]:
                await asyncio.sleep(0.05)

    async def launchctl(self, *words: str) -> None:
        await self.connection.execute(Run(argv=("launchctl", *words), purpose="test", as_root=True))


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    github = simulated_github(SystemClock())
    github.add_account("tuist")
    loopback = Address("127.0.0.1", 0)
    bound = bind(loopback)
    url = f"http://{bound_address(loopback, bound)}"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(application(github), bound))
        settings = dataclasses.replace(SETTINGS, github_url=url)
        served = await stack.enter_async_context(SimulatedHost(folder / "mac", settings=settings))
        connection = await stack.enter_async_context(connected(served))
        yield Scene(github, served.mac, connection, folder)


async def test_runner_is_online_at_github_while_its_job_runs(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        steps = on.steps(on.registration_token())
        await converge.apply(on.connection, steps)
        await on.until((fixtures.NODE, True))
        [runner] = on.github.actions.runners.values()
        assert runner.labels == ("self-hosted", "macOS", "ARM64", "vm-image-builder")

        await on.launchctl("bootout", TARGET)
        await on.until((fixtures.NODE, False))
        await converge.apply(on.connection, steps)
        await on.until((fixtures.NODE, True))
        await on.launchctl("kickstart", "-k", TARGET)
        await on.until((fixtures.NODE, False))
        await on.until((fixtures.NODE, True))
        assert [*on.github.actions.runners.values()] == [runner]


async def test_new_registration_replaces_the_runner_of_that_name(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        await converge.apply(on.connection, on.steps(on.registration_token()))
        [before] = on.github.actions.runners
        on.mac.files.remove(f"{host.ACTIONS_RUNNER}/.runner")

        await converge.apply(on.connection, on.steps(on.registration_token()))

        await on.until((fixtures.NODE, True))
        assert [*on.github.actions.runners] != [before]


async def test_removed_runner_ends_and_is_not_registered_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        await converge.apply(on.connection, on.steps(on.registration_token()))
        await on.until((fixtures.NODE, True))

        on.github.actions.remove(*on.github.actions.runners.values())

        async with asyncio.timeout(TIMEOUT_SECONDS):
            while on.mac.state["launchd"]["jobs"][TARGET].get("pid"):
                await asyncio.sleep(0.05)
        assert on.runners() == []


async def test_wrong_token_fails_the_step_and_is_not_shown(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        with pytest.raises(CommandFailed, match="404") as raised:
            await converge.apply(on.connection, on.steps("ACANARY"))

        assert "ACANARY" not in str(raised.value)
        assert on.runners() == []
        assert not on.mac.files.exists(f"{host.ACTIONS_RUNNER}/.runner")


async def test_builder_is_set_up_over_ssh_and_removed_again(tmp_path: Path) -> None:
    steps = builder_steps(tmp_path)
    model = Mac.create(tmp_path / "model", settings=SETTINGS, clock=SystemClock())
    await converge.apply(ModelConnection(model, clock=SystemClock()), steps)
    async with SimulatedHost(tmp_path / "mac", settings=SETTINGS) as served:
        async with connected(served) as connection:
            await converge.apply(connection, steps)

            assert (await converge.plan(connection, steps)).is_empty
            state = served.mac.state
            assert state["launchd"]["jobs"][TARGET]["pid"]
            for key in ("homebrew", "xcode", "actions_runner"):
                assert state[key] == model.state[key]
            for path in ("/etc/zshenv", "/opt/actions-runner/.path", host.ACTIONS_RUNNER_NOTE):
                assert served.mac.files.read(path) == model.files.read(path)

            await converge.apply(connection, removal.steps("m1"))

        assert not [job for job in served.mac.state["launchd"]["jobs"] if "runner" in job]
        assert not served.mac.files.exists(host.ACTIONS_RUNNER)
        assert not served.mac.files.exists(host.BUILD_CACHE)
