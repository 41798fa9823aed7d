"""Jobs flow through three replicas on PostgreSQL while replicas and PostgreSQL are killed; the history of such a run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import psycopg

from bramley.base.secret import Secret
from bramley.github.http import HttpTransport
from bramley.kube import config_loader
from tests.postgres_server import PostgresServer
from tests.process.dispatch import history as histories
from tests.process.dispatch.guests import Guests, Proxy, a_proxy
from tests.process.dispatch.history import History, JobState, Run
from tests.process.dispatch.processes import (
    LABEL,
    REPOSITORIES,
    Files,
    Replica,
    a_github,
    call,
    create_pool,
    kill_postgres,
)
from tests.process.serving.processes import Bramley

PODS = 8
JOB_SECONDS = 0.5
# Seconds before each kill, and between two jobs.
KILL_PAUSE = (0.1, 2.0)
JOB_PAUSE = (0.05, 0.5)
POSTGRES_DOWN = (0.0, 1.5)
SETTLE_SECONDS = 400.0


@dataclass(slots=True)
class Fleet:
    """The processes of a run, and its history."""

    replicas: Sequence[Replica]
    postgres: PostgresServer
    database_url: str
    github: HttpTransport
    proxy: Proxy
    guests: Guests
    rng: random.Random
    is_over: bool = False
    postgres_kills: int = 0
    history: History = field(default_factory=History)
    jobs: list[int] = field(default_factory=list)

    async def queue_jobs(self) -> None:
        """Queue jobs of two organisations until `is_over`."""
        while not self.is_over:
            repository = self.rng.choice(REPOSITORIES)
            body = {"repository": repository, "labels": [LABEL], "seconds": JOB_SECONDS}
            response = await call(self.github, "/sim/jobs", body)
            self.jobs.append(msgspec.json.decode(response.body)["id"])
            await asyncio.sleep(self.rng.uniform(*JOB_PAUSE))

    async def kill_replicas(self, kills: int) -> None:
        """Kill a random replica at a random moment, and start it again."""
        for _ in range(kills):
            await asyncio.sleep(self.rng.uniform(*KILL_PAUSE))
            victim = self.rng.choice(self.replicas)
            await victim.kill()
            await victim.start()

    async def kill_postgres(self, kills: int, replica_kills: int) -> None:
        """Kill PostgreSQL each time after a share of the kills of replicas, and start it again after a moment."""
        for number in range(kills):
            while self.replica_kills < replica_kills * (number + 0.5) / kills:
                await asyncio.sleep(0.01)
            await asyncio.sleep(self.rng.uniform(*KILL_PAUSE))
            await asyncio.to_thread(kill_postgres, self.postgres)
            await asyncio.sleep(self.rng.uniform(*POSTGRES_DOWN))
            await asyncio.to_thread(self.postgres.start)
            self.postgres_kills += 1

    @property
    def replica_kills(self) -> int:
        """Return how often a replica was killed."""
        return sum(each.kills for each in self.replicas)

    async def settle(self) -> None:
        """Wait until the records of all parties agree, or too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_SECONDS
        while True:
            await self.read()
            if not self.violations() or loop.time() > deadline:
                return
            await asyncio.sleep(0.5)

    def violations(self) -> list[str]:
        """Return what is wrong with the records; runners that wait for a job have none."""
        waiting = [Run(pod, jit) for pod, jit in self.guests.idle.items()]
        runs = [*self.history.runs, *waiting]
        failed = self.proxy.failed_webhooks
        return histories.violations(replace(self.history, runs=runs, failed_webhooks=failed))

    async def read(self) -> None:
        """Read the records of GitHub and of the database."""
        for job_id in self.jobs:
            known = self.history.at_github.get(job_id)
            if known is None or known.state != histories.COMPLETED:
                answer = await call(self.github, f"/sim/jobs/{job_id}")
                self.history.at_github[job_id] = _state(msgspec.json.decode(answer.body))
        await asyncio.to_thread(self._read_database)

    def _read_database(self) -> None:
        with psycopg.connect(self.database_url) as connection:
            jobs = connection.execute("SELECT id, state, conclusion, runner_name FROM jobs")
            self.history.stored = {row[0]: JobState(*row[1:]) for row in jobs}
            deliveries = connection.execute(
                "SELECT guid, CASE WHEN processed_at IS NULL THEN '' ELSE outcome END FROM deliveries"
            )
            self.history.deliveries = dict(deliveries.fetchall())
            claims = connection.execute("SELECT handle FROM claims WHERE finished_at IS NULL")
            self.history.unfinished_claims = [row[0] for row in claims]
            displaced = connection.execute(
                "SELECT pod_name FROM claims WHERE outcome = 'displaced' AND ended_at IS NULL"
            )
            self.history.displaced = {row[0] for row in displaced}


def _state(job: dict[str, str | None]) -> JobState:
    return JobState(job["status"] or "", job["conclusion"] or "", job["runner_name"] or "")


@asynccontextmanager
async def a_fleet(
    api: Bramley,
    postgres: PostgresServer,
    folder: Path,
    ports: Sequence[int],
    *,
    rng: random.Random,
    retries: bool,
) -> AsyncIterator[Fleet]:
    """Run the processes; all replicas serve when the block begins."""
    files, history = Files(folder, api.kubeconfig), History()
    database_url = postgres.new_database()
    files.write(database_url)
    replicas = [Replica(f"replica-{p}", p, [], folder / f"replica-{p}.log") for p in ports]
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        kube = await enter(config_loader.connect(api.kubeconfig, environment={}))
        await create_pool(kube)
        proxy, url = await enter(a_proxy(replicas, history, rng, retries=retries))
        github, github_url = await enter(a_github(files, url))
        flags = [*files.flags(github_url), "--database-url-file", str(files.database_url)]
        for each in replicas:
            each.flags = flags
            stack.push_async_callback(each.stop)
        await asyncio.gather(*(each.start() for each in replicas))
        guests = Guests(kube, Secret(api.token), proxy, github, history)
        fleet = Fleet(replicas, postgres, database_url, github, proxy, guests, rng, history=history)
        yield fleet


async def run_with_kills(fleet: Fleet, replica_kills: int, postgres_kills: int) -> list[str]:
    """Run jobs during the kills, and until everything has settled; return the violations."""
    async with asyncio.TaskGroup() as group:
        guests = [group.create_task(fleet.guests.run()) for _ in range(PODS)]
        queueing = group.create_task(fleet.queue_jobs())
        await asyncio.gather(
            fleet.kill_replicas(replica_kills),
            fleet.kill_postgres(postgres_kills, replica_kills),
        )
        # Not cancelled: a job whose request was cut off would not be recorded.
        fleet.is_over = True
        await queueing
        await fleet.settle()
        found = fleet.violations()
        for task in guests:
            task.cancel()
    return found
