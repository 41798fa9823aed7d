from __future__ import annotations

import random
from dataclasses import replace

from bramley.app.sample_jobs import SampleJobs
from bramley.dispatch.jobs import State
from bramley.sim.github.github import SimulatedGitHub
from tests import github_keys, virtual_time
from tests.unit.dispatch.job_builders import a_job


def a_github() -> SimulatedGitHub:
    github = SimulatedGitHub(github_keys.rsa_key().public_key(), clock=virtual_time.clock())
    github.add_account("acme")
    github.add_repository("acme", "app")
    return github


async def test_jobs_of_the_user_that_no_runner_accepts_do_not_stop_the_stream() -> None:
    github = a_github()
    repository = github.accounts["acme"].repositories["app"]
    for _ in range(2):
        github.actions.queue_job(repository, labels=["unknown"])
    stream = SampleJobs(github, random.Random(1))

    for _ in range(5):
        stream.queue_next()

    assert len(github.actions.jobs) == 4


async def test_jobs_of_an_earlier_start_are_queued_again_and_those_that_ran_are_cancelled() -> None:
    github = a_github()
    queued, ran, foreign = a_job(State.QUEUED), a_job(State.RUNNING), a_job(State.QUEUED)
    ran = replace(ran, facts=replace(ran.facts, job_id=8))
    foreign = replace(foreign, facts=replace(foreign.facts, job_id=9, repository="other/app"))

    SampleJobs(github, random.Random(1)).restore([queued, ran, foreign])

    restored = {job.id: (job.status, job.conclusion) for job in github.actions.jobs.values()}
    assert restored == {7: ("queued", None), 8: ("completed", "cancelled")}
    assert github.actions.jobs[7].labels == queued.facts.labels
