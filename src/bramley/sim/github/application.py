"""The simulated GitHub over HTTP, as an ASGI application: GitHub's calls, and those of guests and people under `/sim`.

Every handler is asynchronous, since Starlette runs others in threads, which virtual time refuses.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from email.utils import format_datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from bramley.sim.github import calls
from bramley.sim.github.access import Caller
from bramley.sim.github.calls import Answer
from bramley.sim.github.faults import MAX_SECONDS, Fault
from bramley.sim.github.github import SimulatedGitHub
from bramley.sim.github.records import COMPLETED, Job, Refusal

T = TypeVar("T")

ENTERPRISE_PREFIX = "/api/v3"
_MAX_BODY_BYTES = 1024 * 1024

Handler = Callable[[SimulatedGitHub, Caller, Request], Awaitable[Answer]]


class NewJob(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A job to queue: `POST /sim/jobs`."""

    repository: str
    labels: list[str]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 10.0
    name: Annotated[str, msgspec.Meta(min_length=1)] = "build"
    outcome: str = "success"


class StartedRunner(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A runner that starts: `POST /sim/runners`. It is answered when its job ends, when that starts, or when the runner is removed."""

    encoded_jit_config: str
    until: Literal["start", "end", "removal"] = "end"


class Registration(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A runner that config.sh registers with a token: `POST /sim/registrations`. It keeps its registration after a job."""

    token: str
    url: str
    name: str
    labels: list[str]
    group: str = "Default"
    replace: bool = False


class BusyRunner(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A runner that runs its job: `POST /sim/jobs/{job}/run`."""

    encoded_jit_config: str


def application(github: SimulatedGitHub) -> Starlette:
    """Return the application; GitHub's calls are served with and without the prefix of GitHub Enterprise."""
    routes = [
        Route(path, _endpoint(github, handler), methods=[method])
        for method, path, handler in calls.CALLS
    ]
    own = [
        Route("/jobs", _own(github, _queue_job), methods=["POST"]),
        Route("/jobs/{job:int}", _own(github, _show_job), methods=["GET"]),
        Route("/jobs/{job:int}/run", _own(github, _run_job), methods=["POST"]),
        Route("/registrations", _own(github, _register_runner), methods=["POST"]),
        Route("/runners", _own(github, _run_runner), methods=["POST"]),
        Route("/faults", _own(github, _add_fault), methods=["POST"]),
    ]
    return Starlette(
        routes=[Mount("/sim", routes=own), Mount(ENTERPRISE_PREFIX, routes=routes), *routes]
    )


def _endpoint(
    github: SimulatedGitHub, handler: Handler
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        path = request.url.path.removeprefix(ENTERPRISE_PREFIX)
        fault = github.faults.take(request.method, path)
        try:
            return await _with_fault(github, request, handler, fault)
        except Refusal as refusal:
            return _refused(github, refusal)

    return endpoint


async def _with_fault(
    github: SimulatedGitHub, request: Request, handler: Handler, fault: Fault | None
) -> Response:
    if fault is None:
        return await _called(github, request, handler)
    if fault.kind == "latency":
        await asyncio.sleep(fault.seconds)
    refusal = fault.refusal()
    if refusal is None or fault.is_processed:
        response = await _called(github, request, handler)
        if refusal is None:
            return response
    raise refusal


async def _called(github: SimulatedGitHub, request: Request, handler: Handler) -> Response:
    caller = github.access.authenticate(request.headers)
    who = f"installation ID {caller.account.installation_id}" if caller.account else "the App"
    caller.budget.check(github.clock.now(), who)
    answer = await handler(github, caller, request)
    body = b"" if answer.status == 204 else msgspec.json.encode(answer.body)
    etag = f'W/"{hashlib.sha256(body).hexdigest()}"'
    is_known = request.method == "GET" and request.headers.get("if-none-match") == etag
    if not is_known:
        # A response of 304 does not count.
        caller.budget.used += 1
    headers = {**caller.budget.headers(), **answer.headers}
    if request.method == "GET":
        headers["etag"] = etag
    if is_known:
        return _response(github, 304, b"", headers)
    return _response(github, answer.status, body, headers)


def _own(
    github: SimulatedGitHub,
    handler: Callable[[SimulatedGitHub, Request], Awaitable[Any]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a call that GitHub does not have; it needs no credential."""

    async def endpoint(request: Request) -> Response:
        try:
            body = await handler(github, request)
        except Refusal as refusal:
            return _refused(github, refusal)
        return _response(github, 200, msgspec.json.encode(body), {})

    return endpoint


async def _queue_job(github: SimulatedGitHub, request: Request) -> Any:
    requested = await decoded(request, NewJob)
    owner, _, name = requested.repository.partition("/")
    repository = calls.repository_of(github, owner, name)
    job = github.actions.queue_job(
        repository,
        labels=requested.labels,
        duration=timedelta(seconds=requested.seconds),
        name=requested.name,
        outcome=requested.outcome,
    )
    return job.json()


async def _show_job(github: SimulatedGitHub, request: Request) -> Any:
    return _job(github, request).json()


async def _register_runner(github: SimulatedGitHub, request: Request) -> Any:
    """Register a runner, and return the configuration with which its process connects."""
    requested = await decoded(request, Registration)
    owner, account = calls.runner_owner(github, requested.url)
    github.access.require_registration(requested.token, owner)
    if requested.group not in account.groups:
        raise Refusal(422, f"Could not find any self-hosted runner group named {requested.group}")
    runner = github.actions.register(
        owner,
        requested.name,
        requested.labels,
        account.groups.index(requested.group) + 1,
        is_ephemeral=False,
        replaces=requested.replace,
    )
    return {"id": runner.id, "encoded_jit_config": github.actions.jit_config(runner)}


async def _run_runner(github: SimulatedGitHub, request: Request) -> Any:
    """Run a runner until its job starts or ends; a client that disconnects is a runner that was lost."""
    started = await decoded(request, StartedRunner)
    actions = github.actions
    runner = actions.connect(started.encoded_jit_config)
    if started.until == "removal":
        await _while_connected(request, actions.serve(runner))
        return _progress(None)
    if started.until == "end":
        return _progress(await _while_connected(request, actions.run_job(runner)))
    job = await _while_connected(request, actions.wait_for_job(runner))
    if job is not None:
        actions.expect_reconnection(runner)
    return _progress(job)


async def _run_job(github: SimulatedGitHub, request: Request) -> Any:
    """Run a job that has started to its end; one that ended meanwhile, because it was cancelled, is shown at once."""
    busy = await decoded(request, BusyRunner)
    job = _job(github, request)
    if job.status != COMPLETED:
        runner = github.actions.runner_of(job, busy.encoded_jit_config)
        await _while_connected(request, github.actions.finish_job(job, runner))
    return _progress(job)


async def _while_connected(request: Request, steps: Coroutine[Any, Any, T]) -> T | None:
    """Return the result; a client that disconnects cancels the steps, and the result is None."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(steps)
        watching = group.create_task(_disconnected(request))
        done, _ = await asyncio.wait({running, watching}, return_when=asyncio.FIRST_COMPLETED)
        (watching if running in done else running).cancel()
    return None if running.cancelled() else running.result()


def _progress(job: Job | None) -> dict[str, Any]:
    """Return what a runner is answered: its job, and for how many seconds that has run."""
    if job is None:
        return {"job": None, "seconds": 0}
    seconds = 0.0
    if job.started_at is not None and job.completed_at is not None:
        seconds = (job.completed_at - job.started_at).total_seconds()
    return {"job": job.json(), "seconds": round(seconds)}


def _job(github: SimulatedGitHub, request: Request) -> Job:
    job = github.actions.jobs.get(request.path_params["job"])
    if job is None:
        raise Refusal(404, "Not Found")
    return job


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _add_fault(github: SimulatedGitHub, request: Request) -> Any:
    github.faults.add(await decoded(request, Fault))
    return {}


async def decoded(request: Request, kind: type[T]) -> T:
    """Return the body of a request as this type; a Refusal if it is too large or something else."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise Refusal(413, "Request Entity Too Large")
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(422, f"Invalid request: {error}") from None


def _refused(github: SimulatedGitHub, refusal: Refusal) -> Response:
    body = {"message": refusal.message, "status": str(refusal.status)}
    return _response(github, refusal.status, msgspec.json.encode(body), refusal.headers)


def _response(
    github: SimulatedGitHub, status: int, body: bytes, headers: dict[str, str]
) -> Response:
    date = format_datetime(github.clock.now(), usegmt=True)
    all_headers = {"content-type": "application/json; charset=utf-8", "date": date, **headers}
    return Response(body, status, all_headers)
