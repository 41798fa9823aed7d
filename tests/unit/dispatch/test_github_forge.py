"""GitHub as the forge: where runners are registered, and what a refusal is evidence of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.dispatch import github_forge
from bramley.dispatch.forge import RunnerState
from bramley.dispatch.github_forge import GitHubForge
from bramley.kube.in_process import InProcessTransport
from bramley.kube.transport import Request, Response
from bramley.sim.github.application import application
from bramley.sim.github.faults import Fault
from bramley.sim.github.github import SimulatedGitHub
from tests import virtual_time
from tests.github_peer import peer, simulated_github
from tests.hook_receiver import HookReceiver

OF_ORGANISATION, OF_USER = "acme/app", "jane/dotfiles"


@dataclass(slots=True)
class Recorder:
    """Records the requests to a simulated GitHub."""

    github: SimulatedGitHub
    sent: list[str] = field(default_factory=list)

    async def send(self, request: Request) -> Response:
        self.sent.append(f"{request.method} {request.path}")
        return await InProcessTransport(application(self.github)).send(request)


def a_forge(settings: github_forge.Settings | None = None) -> tuple[GitHubForge, Recorder]:
    recorder = Recorder(simulated_github(virtual_time.clock()))
    app = peer(recorder.github, recorder).app()
    secrets: Callable[[], list[Secret]] = list
    return GitHubForge(app, secrets, settings or github_forge.Settings()), recorder


@pytest.mark.parametrize(
    ("repository", "foreign", "own"),
    [
        (OF_ORGANISATION, "/repos/acme/app", "/orgs/acme"),
        (OF_USER, "/orgs/jane", "/repos/jane/dotfiles"),
    ],
)
async def test_runners_are_used_in_one_place_only(repository: str, foreign: str, own: str) -> None:
    """Organisations and repositories number their runners separately, so the same id may be that of an unrelated runner."""
    forge, recorder = a_forge()
    created = await forge.create_runner(repository, "r-1", ["macos"])
    state = await forge.runner_state(repository, created.runner_id, "r-1")
    found = await forge.find_runner(repository, "r-1")

    assert await forge.remove_runner(repository, created.runner_id)
    assert await forge.remove_runner(repository, created.runner_id)

    assert (state, found) == (RunnerState.OFFLINE, created.runner_id)
    runners = [each for each in recorder.sent if "/actions/runners" in each]
    assert [each for each in runners if f" {foreign}/" in each] == []
    assert all(f" {own}/" in each for each in runners)


async def test_runner_of_a_user_joins_the_only_group_of_a_repository() -> None:
    forge, recorder = a_forge(github_forge.Settings(runner_group_id=2))
    recorder.github.accounts["acme"].groups.append("macs")

    of_organisation = await forge.create_runner(OF_ORGANISATION, "r-1", ["macos"])
    of_user = await forge.create_runner(OF_USER, "r-2", ["macos"])

    runners = recorder.github.actions.runners
    groups = [runners[each.runner_id].group_id for each in (of_organisation, of_user)]
    assert groups == [2, 1]


async def test_runner_of_an_unknown_group_is_not_registered_in_the_repository() -> None:
    """It would run jobs that the group excludes."""
    forge, recorder = a_forge()
    path = "/orgs/acme/actions/runners/generate-jitconfig"
    recorder.github.faults.add(Fault(kind="status", status=404, path=path))

    with pytest.raises(errors.NotFound):
        await forge.create_runner(OF_ORGANISATION, "r-1", ["macos"])

    assert recorder.github.actions.runners == {}


USES: dict[str, Callable[[GitHubForge, int], Awaitable[object]]] = {
    "create": lambda forge, _: forge.create_runner(OF_ORGANISATION, "r-2", ["macos"]),
    "state": lambda forge, runner: forge.runner_state(OF_ORGANISATION, runner, "r-1"),
    "find": lambda forge, _: forge.find_runner(OF_ORGANISATION, "r-1"),
    "remove": lambda forge, runner: forge.remove_runner(OF_ORGANISATION, runner),
    "job": lambda forge, _: forge.job(OF_ORGANISATION, 1),
    "jobs": lambda forge, _: forge.unfinished_jobs(OF_ORGANISATION),
}


@pytest.mark.parametrize("use", USES)
async def test_new_installation_is_used_without_a_restart(use: str) -> None:
    forge, recorder = a_forge()
    github = recorder.github
    created = await forge.create_runner(OF_ORGANISATION, "r-1", ["macos"])
    github.accounts["acme"].installation_id += 1000
    github.access.revoke_tokens()

    await USES[use](forge, created.runner_id)

    state = await forge.runner_state(OF_ORGANISATION, created.runner_id, "r-1")
    assert state == (RunnerState.GONE if use == "remove" else RunnerState.OFFLINE)


async def test_many_callers_share_the_first_lookup() -> None:
    forge, recorder = a_forge()
    # Slow, so that all of them are there before the answer.
    slow = Fault(kind="latency", seconds=1, path="/repos/acme/app/installation", times=9)
    recorder.github.faults.add(slow)

    await asyncio.gather(
        *(forge.create_runner(OF_ORGANISATION, f"r-{number}", ["macos"]) for number in range(9))
    )

    assert recorder.sent.count("GET /repos/acme/app/installation") == 1


async def test_removed_installation_is_no_evidence_that_runners_and_jobs_are_gone() -> None:
    forge, recorder = a_forge()
    github = recorder.github
    created = await forge.create_runner(OF_ORGANISATION, "r-1", ["macos"])
    job = github.actions.queue_job(github.accounts["acme"].repositories["app"], labels=["linux"])
    assert await forge.job(OF_ORGANISATION, job.id) is not None
    del github.accounts["acme"]
    github.access.revoke_tokens()

    for use in ("state", "find", "remove", "job", "jobs", "state"):
        with pytest.raises(errors.Forbidden, match="not installed for acme/app"):
            await USES[use](forge, created.runner_id)


async def test_repository_that_the_app_may_not_read_any_more_is_no_evidence_either() -> None:
    forge, recorder = a_forge()
    github = recorder.github
    job = github.actions.queue_job(github.accounts["acme"].repositories["app"], labels=["linux"])
    assert await forge.job(OF_ORGANISATION, job.id) is not None
    del github.accounts["acme"].repositories["app"]

    with pytest.raises(errors.Forbidden):
        await forge.job(OF_ORGANISATION, job.id)


async def test_renamed_organisation_is_used_by_its_new_name() -> None:
    forge, recorder = a_forge()
    github = recorder.github
    created = await forge.create_runner(OF_ORGANISATION, "r-1", ["macos"])
    # The old login has no organisation, and the path of the old repository is redirected.
    github.faults.add(Fault(kind="status", status=404, path="/orgs/acme/*", times=99))
    github.accounts["globex"] = github.accounts["acme"]
    github.accounts["globex"].login = "globex"
    github.actions.runners[created.runner_id].owner = "/orgs/globex"

    for _ in range(2):
        state = await forge.runner_state(OF_ORGANISATION, created.runner_id, "r-1")
        assert state == RunnerState.OFFLINE


async def test_absent_runners_and_jobs_are_gone() -> None:
    forge, _ = a_forge()

    for repository in (OF_ORGANISATION, OF_USER):
        assert await forge.runner_state(repository, 7, "r-1") == RunnerState.GONE
        assert await forge.find_runner(repository, "r-1") is None
        assert await forge.remove_runner(repository, 7)
        assert await forge.job(repository, 7) is None


async def test_wrong_app_id_is_named_instead_of_a_missing_installation_alone() -> None:
    recorder = Recorder(simulated_github(virtual_time.clock()))
    forge = GitHubForge(peer(recorder.github, recorder).app(app_id="2"), list)

    with pytest.raises(errors.Forbidden, match="Integration not found"):
        await forge.job(OF_ORGANISATION, 1)


async def test_suspended_installation_is_forbidden_until_it_is_not() -> None:
    forge, recorder = a_forge()
    account = recorder.github.accounts["acme"]
    await forge.create_runner(OF_ORGANISATION, "r-1", ["macos"])
    account.is_suspended = True

    with pytest.raises(errors.Forbidden, match="suspended"):
        await forge.create_runner(OF_ORGANISATION, "r-2", ["macos"])

    account.is_suspended = False
    assert (await forge.create_runner(OF_ORGANISATION, "r-2", ["macos"])).runner_id


async def test_only_the_newest_deliveries_of_a_busy_app_are_listed() -> None:
    forge, recorder = a_forge(github_forge.Settings(max_deliveries=250))
    receiver = HookReceiver(status=500)
    github = recorder.github
    github.webhooks.hook = receiver.hook()
    began = virtual_time.clock().now()
    async with github.running():
        for _ in range(400):
            github.actions.queue_job(github.accounts["acme"].repositories["app"], labels=["x"])
        await receiver.wait_for(400)
        await asyncio.sleep(1)

    failed = await forge.failed_deliveries(began)

    assert [each.delivery_id for each in failed] == list(range(400, 150, -1))
    assert recorder.sent == ["GET /app/hook/deliveries"] * 3
