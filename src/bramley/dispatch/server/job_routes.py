"""Jobs for people: list, show, explain, log, cancel, requeue and export, as JSON or CSV.

The caller's Kubernetes token decides: reading needs `get runnerpools`, changing `update runnerpools` in the namespace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bramley.api.names import dispatch as names
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.dispatch import job_views
from bramley.dispatch.authentication import Authentication
from bramley.dispatch.job_explanation import Explanation
from bramley.dispatch.jobs import State
from bramley.dispatch.server.requests import OnRefusal, answer, guarded
from bramley.dispatch.server.runner_routes import time_parameter
from bramley.dispatch.store.records import JobFilter, Timeline
from bramley.dispatch.store.store import Store
from bramley.dispatch.webhook_payload import identifier

_PAGE = 500
_DEFAULT_LIMIT = 50
_MAX_LIMIT = 500
_EXPORTED = timedelta(days=30)

Explain = Callable[[Timeline], Awaitable[Explanation]]


@dataclass(frozen=True, slots=True)
class JobRoutes:
    """Answers people; `explain` computes why a job waits."""

    store: Store
    authentication: Authentication
    explain: Explain
    clock: Clock
    on_refusal: OnRefusal

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        one = f"{names.JOBS_PATH}/{{job}}"
        return (
            Route(names.JOBS_PATH, guarded(self.list_jobs, self.on_refusal), methods=["GET"]),
            Route(
                f"{names.JOBS_PATH}/export", guarded(self.export, self.on_refusal), methods=["GET"]
            ),
            Route(one, guarded(self.show, self.on_refusal), methods=["GET"]),
            Route(
                f"{one}/explanation", guarded(self.explanation, self.on_refusal), methods=["GET"]
            ),
            Route(f"{one}/log", guarded(self.log, self.on_refusal), methods=["GET"]),
            Route(f"{one}/cancel", guarded(self.cancel, self.on_refusal), methods=["POST"]),
            Route(f"{one}/requeue", guarded(self.requeue, self.on_refusal), methods=["POST"]),
        )

    async def list_jobs(self, request: Request) -> Response:
        """List jobs, the newest first."""
        await self._require(request, "get")
        found = await self.store.jobs(_filter(request))
        timelines = [await self.store.timeline(job.id) for job in found]
        return answer(200, job_views.list_view(timelines))

    async def show(self, request: Request) -> Response:
        """Show everything that happened to a job."""
        await self._require(request, "get")
        return answer(200, job_views.timeline_view(await self._timeline(request)))

    async def explanation(self, request: Request) -> Response:
        """Explain what a job waits for."""
        await self._require(request, "get")
        return answer(200, await self.explain(await self._timeline(request)))

    async def log(self, request: Request) -> Response:
        """Return the last lines of the VM that failed with a job."""
        await self._require(request, "get")
        timeline = await self._timeline(request)
        text = await self.store.find_log(timeline.job.id)
        if text is None:
            raise errors.NotFound(
                f"no log is kept for job {timeline.job.id}; logs are kept only of VMs that failed"
            )
        return Response(text, media_type="text/plain; charset=utf-8")

    async def cancel(self, request: Request) -> Response:
        """Cancel a job in the queue."""
        await self._require(request, "update")
        timeline = await self._timeline(request)
        if not await self.store.cancel(timeline.job.id, self.clock.now()):
            raise errors.Conflict(f"job {timeline.job.id} has ended: {timeline.job.state}")
        return answer(200, job_views.timeline_view(await self._timeline(request)))

    async def requeue(self, request: Request) -> Response:
        """Return a claimed job to the queue."""
        await self._require(request, "update")
        timeline = await self._timeline(request)
        job = timeline.job
        if job.state == State.RUNNING:
            # GitHub does not start a job twice, so another Pod would get a runner for nothing.
            raise errors.Conflict(f"job {job.id} is running; cancel its run at GitHub")
        if not await self.store.requeue(job.id, self.clock.now()):
            raise errors.Conflict(
                f"job {job.id} is {job.state}; only a claimed job can be requeued"
            )
        return answer(200, job_views.timeline_view(await self._timeline(request)))

    async def export(self, request: Request) -> Response:
        """Stream the jobs of a period as CSV or as JSON lines."""
        await self._require(request, "get")
        since = self.clock.now() - _EXPORTED
        if "since" in request.query_params:
            since = time_parameter(request, "since")
        form = request.query_params.get("format", "csv")
        if form not in ("csv", "json"):
            raise errors.BadRequest("the parameter format must be csv or json")

        async def rows() -> AsyncIterator[bytes]:
            if form == "csv":
                yield job_views.csv_header().encode()
            after = 0
            while page := await self.store.ended_timelines(since, after_id=after, limit=_PAGE):
                for each in page:
                    yield (
                        job_views.csv_row(each).encode()
                        if form == "csv"
                        else job_views.json_line(each)
                    )
                after = page[-1].job.id

        media = "text/csv; charset=utf-8" if form == "csv" else "application/x-ndjson"
        return StreamingResponse(rows(), media_type=media)

    async def _require(self, request: Request, verb: str) -> None:
        await self.authentication.caller(request.headers.get("authorization"), verb)

    async def _timeline(self, request: Request) -> Timeline:
        text = request.path_params["job"]
        if not _is_number(text):
            raise errors.NotFound("a job is named by the number of its workflow job")
        return await self.store.timeline(int(text))


def _filter(request: Request) -> JobFilter:
    query = request.query_params
    states = query.getlist("state")
    unknown = [state for state in states if state not in set(State)]
    if unknown:
        raise errors.BadRequest(f"the parameter state must be one of {', '.join(State)}")
    return JobFilter(
        states=[State(state) for state in states],
        pool=_name(request, "pool"),
        account=_name(request, "account").lower(),
        before_id=_number(request, "before", 2**63 - 1),
        limit=min(_number(request, "limit", _DEFAULT_LIMIT), _MAX_LIMIT),
    )


def _name(request: Request, parameter: str) -> str:
    text = request.query_params.get(parameter, "")
    return identifier(f"the parameter {parameter}", text) if text else ""


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not _is_number(text):
        raise errors.BadRequest(f"the parameter {name} is no number")
    return int(text)


def _is_number(text: str) -> bool:
    # Fewer digits than the greatest integer of the database.
    return text.isascii() and text.isdigit() and len(text) < 19
