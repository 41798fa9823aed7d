"""Jobs of the simulated GitHub: any matching runner gets them, runners are lost, webhooks are late, lost or repeated."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.sim.github.actions import LOST_AFTER
from bramley.sim.github.github import Settings, SimulatedGitHub
from bramley.sim.github.records import Job, Refusal, Repository
from bramley.sim.github.webhooks import DeliverySettings
from tests import virtual_time
from tests.github_peer import APP, DOTFILES, peer, simulated_github
from tests.hook_receiver import HookReceiver

MINUTE = timedelta(minutes=1)


def repository(github: SimulatedGitHub, owner: str = APP.owner, name: str = APP.name) -> Repository:
    return github.accounts[owner].repositories[name]


def a_runner(github: SimulatedGitHub, name: str, *labels: str, owner: str = "/orgs/acme") -> str:
    return github.actions.jit_config(github.actions.register(owner, name, labels, 1))


async def test_runner_gets_the_oldest_job_whose_labels_it_has() -> None:
    github = simulated_github(virtual_time.clock())
    actions = github.actions
    actions.queue_job(repository(github), labels=["linux"])
    oldest = actions.queue_job(repository(github), labels=["MacOS"])
    minted_for = actions.queue_job(repository(github), labels=["macos", "arm64"])
    actions.queue_job(repository(github, DOTFILES.owner, DOTFILES.name), labels=["macos"])

    ran = await actions.run_runner(a_runner(github, "r-1", "macos", "arm64", "xcode"))

    assert ran is oldest
    assert (oldest.status, oldest.runner_name) == ("completed", "r-1")
    assert minted_for.status == "queued"
    assert actions.runners == {}


async def test_idle_runner_gets_a_job_that_is_queued_later() -> None:
    github = simulated_github(virtual_time.clock())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(github.actions.run_runner(a_runner(github, "r-1", "macos")))
        await asyncio.sleep(100)
        job = github.actions.queue_job(repository(github), labels=["macos"], duration=MINUTE)

    assert running.result() is job
    assert job.completed_at == virtual_time.EPOCH + timedelta(seconds=160)


async def test_runner_of_a_repository_gets_only_its_jobs() -> None:
    github = simulated_github(virtual_time.clock())
    other = github.add_repository("acme", "other")
    github.actions.queue_job(other, labels=["macos"])
    own = github.actions.queue_job(repository(github), labels=["macos"])

    ran = await github.actions.run_runner(a_runner(github, "r", "macos", owner="/repos/acme/app"))

    assert ran is own


def registered(github: SimulatedGitHub, *labels: str) -> str:
    """Return the configuration of a runner as config.sh registers it."""
    runner = github.actions.register(
        "/orgs/acme", "builder", labels, 1, is_ephemeral=False, replaces=True
    )
    return github.actions.jit_config(runner)


async def test_registered_runner_stays_after_its_jobs_and_connects_again() -> None:
    github = simulated_github(virtual_time.clock())
    actions, configuration = github.actions, registered(github, "macos")
    jobs = [
        actions.queue_job(repository(github), labels=["macos"], duration=MINUTE) for _ in range(2)
    ]
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(actions.serve(actions.connect(configuration)))
        await asyncio.sleep(90)
        [runner] = actions.runners.values()
        assert (runner.is_online, runner.job) == (True, jobs[1])
        await asyncio.sleep(60)
        serving.cancel()
    assert (runner.is_online, runner.job) == (False, None)
    assert [each.conclusion for each in jobs] == ["success", "success"]

    assert actions.connect(configuration) is runner
    assert runner.is_online


async def test_replaced_runner_is_removed_and_its_configuration_works_no_more() -> None:
    github = simulated_github(virtual_time.clock())
    actions, configuration = github.actions, registered(github, "macos")
    job = actions.queue_job(repository(github), labels=["macos"], duration=MINUTE)
    async with asyncio.TaskGroup() as group:
        group.create_task(actions.serve(actions.connect(configuration)))
        await asyncio.sleep(1)
        registered(github, "macos")

    assert [each.is_online for each in actions.runners.values()] == [False]
    assert job.status == "completed"
    with pytest.raises(Refusal, match="registration has been deleted"):
        actions.connect(configuration)


async def test_jit_configuration_works_once() -> None:
    github = simulated_github(virtual_time.clock())
    jit = a_runner(github, "r-1", "macos")
    async with asyncio.TaskGroup() as group:
        lost = group.create_task(github.actions.run_runner(jit))
        await asyncio.sleep(1)
        lost.cancel()

    for used, status in ((jit, 409), ("bm9uc2Vuc2U=", 400), ("%", 400)):
        with pytest.raises(Refusal) as raised:
            github.actions.connect(used)
        assert raised.value.status == status


async def test_job_of_a_lost_runner_fails_after_ten_minutes() -> None:
    github = simulated_github(virtual_time.clock())
    job = github.actions.queue_job(
        repository(github), labels=["macos"], duration=timedelta(hours=1)
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(github.actions.run_runner(a_runner(github, "r-1", "macos")))
        await asyncio.sleep(60)
        running.cancel()

    assert job.status == "in_progress"
    await asyncio.sleep(LOST_AFTER.total_seconds())
    assert (job.status, job.conclusion) == ("completed", "failure")
    assert github.actions.runners == {}


async def test_removed_or_lost_idle_runner_runs_nothing() -> None:
    github = simulated_github(virtual_time.clock())
    async with asyncio.TaskGroup() as group:
        removed = group.create_task(github.actions.run_runner(a_runner(github, "r-1", "macos")))
        lost = group.create_task(github.actions.run_runner(a_runner(github, "r-2", "macos")))
        await asyncio.sleep(1)
        lost.cancel()
        github.actions.remove(next(iter(github.actions.runners.values())))

    job = github.actions.queue_job(repository(github), labels=["macos"])
    assert removed.result() is None
    assert job.status == "queued"


async def test_cancelled_job_ends_its_runner_at_once() -> None:
    github = simulated_github(virtual_time.clock())
    job = github.actions.queue_job(
        repository(github), labels=["macos"], duration=timedelta(hours=1)
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(github.actions.run_runner(a_runner(github, "r-1", "macos")))
        await asyncio.sleep(60)
        github.actions.cancel_job(job)

    assert virtual_time.clock().monotonic() == 60
    assert (job.status, job.conclusion) == ("completed", "cancelled")


async def test_webhooks_of_a_job_are_signed_and_name_the_runner() -> None:
    receiver = HookReceiver()
    github = simulated_github(virtual_time.clock(), hook=receiver.hook())
    async with github.running():
        job = github.actions.queue_job(repository(github), labels=["macos"])
        await github.actions.run_runner(a_runner(github, "r-1", "macos"))
        await receiver.wait_for(3)

    assert [hook.job for hook in receiver.received] == [
        (job.id, "queued"),
        (job.id, "in_progress"),
        (job.id, "completed"),
    ]
    last = receiver.received[-1].payload
    assert last["workflow_job"]["runner_name"] == "r-1"
    assert (last["installation"], last["organization"]) == ({"id": 100}, {"login": "acme"})
    assert last["repository"]["full_name"] == "acme/app"
    assert {each.status_code for each in github.webhooks.deliveries} == {200}


async def test_redelivery_of_failed_deliveries_reaches_every_job() -> None:
    receiver = HookReceiver()
    settings = Settings(deliveries=DeliverySettings(max_delay=30, loss=0.4, duplicates=0.3))
    target = peer(simulated_github(virtual_time.clock(), settings, receiver.hook()))
    github, app = target.github, target.app()
    async with github.running():
        jobs = [github.actions.queue_job(repository(github), labels=["x"]) for _ in range(200)]
        await asyncio.sleep(60)
        assert len({hook.job for hook in receiver.received}) < 200

        known = [each async for each in app.hook_deliveries(since=virtual_time.EPOCH)]
        delivered = {each.guid for each in known if each.is_delivered}
        failed = {each.guid: each.id for each in known if each.guid not in delivered}
        for delivery_id in failed.values():
            await app.redeliver(delivery_id)
        await asyncio.sleep(60)

    assert {hook.job[0] for hook in receiver.received} == {job.id for job in jobs}
    assert len(receiver.received) > 200


async def history(seed: int) -> list[tuple[str, int, str]]:
    receiver = HookReceiver()
    settings = Settings(
        picks_randomly=True,
        deliveries=DeliverySettings(max_delay=30, loss=0.1, duplicates=0.1),
        seed=seed,
    )
    github = simulated_github(virtual_time.clock(), settings, receiver.hook())
    async with github.running():
        jobs: list[Job | None] = [
            github.actions.queue_job(repository(github), labels=["x"]) for _ in range(20)
        ]
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(github.actions.run_runner(a_runner(github, f"r-{number}", "x")))
        await asyncio.sleep(60)
    assert {job.status for job in jobs if job is not None} == {"completed"}
    return [(hook.guid, *hook.job) for hook in receiver.received]


def test_same_seed_gives_the_same_history() -> None:
    first, again, other = (virtual_time.run(history(seed), seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first != other
