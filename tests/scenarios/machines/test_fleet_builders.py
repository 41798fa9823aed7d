"""Builders in the world in which the machine controller is tested: their runners register at a simulated GitHub."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from bramley.base.secret import Secret
from bramley.github.owners import Organisation
from bramley.host import actions_runner_job
from bramley.host.spec import Builder, TokenSource
from bramley.sim.scaleway.records import USER
from tests import github_peer
from tests.scenarios.machines.builders import ORGANISATION
from tests.scenarios.machines.fleet_world import FleetWorld, a_fleet_world
from tests.scenarios.machines.scripted_bootstrap import Login, ScriptedBootstrap


async def registration_token(world: FleetWorld) -> Secret:
    """Return a registration token of the simulated GitHub."""
    assert world.builders is not None
    github = world.builders.github
    app = github_peer.peer(github).app()
    installation = app.installation(github.accounts[ORGANISATION].installation_id)
    return (await installation.registration_token(Organisation(ORGANISATION))).token


def a_builder(world: FleetWorld, token: TokenSource) -> Builder:
    """Return the part of a specification that makes a Mac a builder."""
    archive = world.artifacts.actions_runner
    return Builder(
        organisation=ORGANISATION, labels=("vm-image-builder",), archive=archive, token=token
    )


async def test_builder_is_online_while_its_job_is_loaded() -> None:
    async with a_fleet_world(servers=1, builders=True) as world:
        builders = world.builders
        assert builders is not None
        builder = a_builder(world, lambda: registration_token(world))
        world.start(ScriptedBootstrap(world, builder).run())
        await world.create_machine("builder")
        await world.until_bootstrapped("builder")
        await asyncio.sleep(5)
        assert builders.online() == ["builder"]
        [server] = world.hosts().values()
        login = Login("a", server.ip, USER, Secret(server.password))
        async with world.connect(login) as mac:
            job = builders.give_job("vm-image-builder", seconds=300)
            await asyncio.sleep(5)
            facts = await mac.probe([actions_runner_job.WORKER])
            assert (actions_runner_job.is_busy(facts), job.runner_name) == (True, "builder")
            await asyncio.sleep(310)
            facts = await mac.probe([actions_runner_job.WORKER])
            assert (actions_runner_job.is_busy(facts), job.conclusion) == (False, "success")
        assert builders.online() == ["builder"]

        await world.delete_machine("builder")
        await asyncio.sleep(300)
        assert builders.online() == []
        assert not builders.killed


async def test_runner_is_not_registered_with_an_expired_token() -> None:
    async with a_fleet_world(builders=True, heartbeat=timedelta(minutes=5)) as world:
        token = await registration_token(world)
        options = {"url": f"https://github.com/{ORGANISATION}", "name": "a", "labels": "x"}
        assert world.builders is not None
        await asyncio.sleep(3590)
        assert world.builders.forge({**options, "token": token.reveal()}) == ""
        await asyncio.sleep(20)

        for value in (token.reveal(), "other"):
            refusal = world.builders.forge({**options, "token": value})
            assert refusal == "Response status code does not indicate success: 404 (Not Found)."


async def test_bootstrap_with_an_invalid_token_registers_no_runner() -> None:
    async def invalid() -> Secret:
        return Secret("AINVALID")

    async with a_fleet_world(servers=1, builders=True) as world:
        world.start(ScriptedBootstrap(world, a_builder(world, invalid)).run())
        await world.create_machine("builder")
        await world.until_ready("builder")
        await asyncio.sleep(60)

        assert world.builders is not None
        assert world.builders.github.actions.runners == {}
        assert not (await world.machines())["builder"].status.ready
