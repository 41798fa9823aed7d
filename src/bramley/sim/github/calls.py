"""GitHub's calls that the simulated GitHub answers, as a table of methods, paths and handlers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from starlette.requests import Request

from bramley.sim.github.access import Caller
from bramley.sim.github.github import ACTIONS, ADMINISTRATION, RUNNERS, SimulatedGitHub
from bramley.sim.github.records import ORGANISATION, Account, Refusal, Repository, Runner

_MAX_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body and further headers."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class NewRunner(msgspec.Struct, kw_only=True):
    """The body of a request for a JIT configuration."""

    name: str
    runner_group_id: int
    labels: list[str]
    work_folder: str = "_work"


def repository_of(github: SimulatedGitHub, owner: str, name: str) -> Repository:
    """Return a repository; a Refusal if it does not exist."""
    account = github.accounts.get(owner.lower())
    found = account and account.repositories.get(name.lower())
    if not found:
        raise Refusal(404, "Not Found")
    return found


def runner_owner(github: SimulatedGitHub, url: str) -> tuple[str, Account]:
    """Return the owner of runners that are registered for a page of GitHub, and its account; a Refusal if it does not exist."""
    login, _, name = urlsplit(url).path.strip("/").partition("/")
    account = github.accounts.get(login.lower())
    if account is None:
        raise Refusal(404, "Not Found")
    if name:
        return f"/repos/{repository_of(github, login, name).full_name}", account
    return f"/orgs/{account.login}", account


async def _installation(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    _require_app(caller)
    account = _account(github, request)
    return Answer(200, {"id": account.installation_id, "account": account.json()})


async def _access_token(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    _require_app(caller)
    requested = request.path_params["installation"]
    found = [each for each in github.accounts.values() if each.installation_id == requested]
    if not found:
        raise Refusal(404, "Not Found")
    token, expires_at = github.access.create_token(found[0])
    return Answer(201, {"token": token, "expires_at": expires_at})


async def _registration_token(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    owner = _owner(github, caller, request)
    token, expires_at = github.access.create_registration_token(owner)
    return Answer(201, {"token": token, "expires_at": expires_at})


async def _jit_config(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    owner = _owner(github, caller, request)
    try:
        requested = msgspec.json.decode(await request.body(), type=NewRunner)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(422, f"Invalid request: {error}") from None
    groups = _account(github, request).groups
    if not 1 <= requested.runner_group_id <= len(groups):
        raise Refusal(422, "Runner group does not exist")
    actions = github.actions
    runner = actions.register(owner, requested.name, requested.labels, requested.runner_group_id)
    body = {"runner": runner.json(), "encoded_jit_config": actions.jit_config(runner)}
    return Answer(201, body)


async def _runners(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    owner = _owner(github, caller, request)
    name = request.query_params.get("name")
    found = [
        runner.json()
        for runner in github.actions.runners.values()
        if runner.owner == owner and name in {None, runner.name}
    ]
    return _page(request, "runners", found)


async def _runner(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    return Answer(200, _registered(github, caller, request).json())


async def _remove_runner(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    github.actions.remove(_registered(github, caller, request))
    return Answer(204)


async def _runner_groups(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    _owner(github, caller, request)
    names = enumerate(_account(github, request).groups, start=1)
    groups = [
        {"id": number, "name": name, "visibility": "all", "default": number == 1}
        for number, name in names
    ]
    return _page(request, "runner_groups", groups)


async def _job(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    repository = _repository(github, caller, request)
    job = github.actions.jobs.get(request.path_params["job"])
    if job is None or job.run.repository != repository:
        raise Refusal(404, "Not Found")
    return Answer(200, job.json())


async def _runs(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    repository = _repository(github, caller, request)
    status = request.query_params.get("status")
    found = [
        run.json()
        for run in reversed(github.actions.runs.values())
        if run.repository == repository and status in {None, run.status}
    ]
    return _page(request, "workflow_runs", found)


async def _run(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    repository = _repository(github, caller, request)
    run = github.actions.runs.get(request.path_params["run"])
    if run is None or run.repository != repository:
        raise Refusal(404, "Not Found")
    return Answer(200, run.json())


async def _jobs_of_run(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    await _run(github, caller, request)
    run = github.actions.runs[request.path_params["run"]]
    return _page(request, "jobs", [job.json() for job in run.jobs])


async def _deliveries(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    """List deliveries, the newest first; the cursor is the id of the first one of a page."""
    _require_app(caller)
    count = _per_page(request)
    first = _number(request, "cursor", len(github.webhooks.deliveries))
    newest = github.webhooks.deliveries[max(0, first - count) : first][::-1]
    rest = first - count
    headers = _link(request, {"cursor": str(rest)}) if rest > 0 else {}
    return Answer(200, [each.json() for each in newest], headers)


async def _redeliver(github: SimulatedGitHub, caller: Caller, request: Request) -> Answer:
    _require_app(caller)
    github.webhooks.redeliver(request.path_params["delivery"])
    return Answer(202, {})


def _require_app(caller: Caller) -> None:
    if caller.account is not None:
        raise Refusal(401, "A JSON web token could not be decoded")


def _account(github: SimulatedGitHub, request: Request) -> Account:
    """Return the account of the path; an organisation's path does not exist for a user."""
    organisation = request.path_params.get("org")
    account = github.accounts.get((organisation or request.path_params["owner"]).lower())
    if account is None or (organisation and account.type != ORGANISATION):
        raise Refusal(404, "Not Found")
    if not organisation and request.path_params["repo"].lower() not in account.repositories:
        raise Refusal(404, "Not Found")
    return account


def _owner(github: SimulatedGitHub, caller: Caller, request: Request) -> str:
    """Return who owns the runners of this path, if the caller may manage them."""
    account = _account(github, request)
    if "org" in request.path_params:
        caller.require(account.login, RUNNERS)
        return f"/orgs/{account.login}"
    caller.require(account.login, ADMINISTRATION)
    return f"/repos/{account.repositories[request.path_params['repo'].lower()].full_name}"


def _repository(github: SimulatedGitHub, caller: Caller, request: Request) -> Repository:
    repository = repository_of(github, request.path_params["owner"], request.path_params["repo"])
    caller.require(repository.owner, ACTIONS)
    return repository


def _registered(github: SimulatedGitHub, caller: Caller, request: Request) -> Runner:
    owner = _owner(github, caller, request)
    runner = github.actions.runners.get(request.path_params["runner"])
    if runner is None or runner.owner != owner:
        raise Refusal(404, "Not Found")
    return runner


def _page(request: Request, name: str, found: Sequence[Any]) -> Answer:
    """Return one page of a list, with a Link header if there is another one."""
    count, page = _per_page(request), _number(request, "page", 1)
    chosen = found[(page - 1) * count : page * count]
    headers = _link(request, {"page": str(page + 1)}) if page * count < len(found) else {}
    return Answer(200, {"total_count": len(found), name: chosen}, headers)


def _per_page(request: Request) -> int:
    return min(_number(request, "per_page", 30), _MAX_PER_PAGE)


def _number(request: Request, name: str, default: int) -> int:
    """Return a positive number of the query; GitHub, too, uses the default instead of anything else."""
    text = request.query_params.get(name, "")
    return int(text) if re.fullmatch("0{0,9}[1-9][0-9]{0,9}", text) else default


def _link(request: Request, changes: dict[str, str]) -> dict[str, str]:
    query = urlencode({**request.query_params, **changes})
    return {"link": f'<{request.url.replace(query=query)}>; rel="next"'}


_RUNNERS = "/actions/runners"
_OWNED = (
    ("GET", "/installation", _installation),
    ("POST", f"{_RUNNERS}/registration-token", _registration_token),
    ("POST", f"{_RUNNERS}/generate-jitconfig", _jit_config),
    ("GET", _RUNNERS, _runners),
    ("GET", f"{_RUNNERS}/{{runner:int}}", _runner),
    ("DELETE", f"{_RUNNERS}/{{runner:int}}", _remove_runner),
)
_REPOSITORY = "/repos/{owner}/{repo}"
CALLS = (
    *((method, f"/orgs/{{org}}{path}", handler) for method, path, handler in _OWNED),
    *((method, f"{_REPOSITORY}{path}", handler) for method, path, handler in _OWNED),
    ("GET", "/orgs/{org}/actions/runner-groups", _runner_groups),
    ("GET", f"{_REPOSITORY}/actions/jobs/{{job:int}}", _job),
    ("GET", f"{_REPOSITORY}/actions/runs", _runs),
    ("GET", f"{_REPOSITORY}/actions/runs/{{run:int}}", _run),
    ("GET", f"{_REPOSITORY}/actions/runs/{{run:int}}/jobs", _jobs_of_run),
    ("GET", "/app/hook/deliveries", _deliveries),
    ("POST", "/app/hook/deliveries/{delivery:int}/attempts", _redeliver),
    ("POST", "/app/installations/{installation:int}/access_tokens", _access_token),
)
