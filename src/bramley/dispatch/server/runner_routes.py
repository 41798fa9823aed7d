"""The endpoints of guests and of the pool controller, with the contract of existing fleets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bramley.api.names import dispatch
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.dispatch.authentication import Authentication, RunnerIdentity
from bramley.dispatch.fair_share import Policy
from bramley.dispatch.polls import MAX_WAIT, Drained, Polls
from bramley.dispatch.server.requests import OnRefusal, answer, decoded, guarded, read_body
from bramley.dispatch.store.store import Store
from bramley.dispatch.webhook_payload import identifier

MAX_POLL_BYTES = 4 * 1024
_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d{1,6})(?:$|[,;\s])")


class StoppedPod(msgspec.Struct):
    """The report of a Pod that stopped."""

    pod_name: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    ended_at: Annotated[datetime, msgspec.Meta(tz=True)]


class _Moment(msgspec.Struct):
    at: Annotated[datetime, msgspec.Meta(tz=True)]


class Stops(Protocol):
    """Handles Pods that stopped."""

    async def pod_stopped(self, pod_name: str, ended_at: datetime) -> None:
        """End the claims of a Pod, and keep the end of its log if it failed."""
        ...


class PollObserver(Protocol):
    """Counts polls."""

    def request(self, pool: str, outcome: str, seconds: float | None) -> None:
        """Count a poll; `seconds` is None for one that was held."""
        ...


@dataclass(frozen=True, slots=True)
class RunnerRoutes:
    """Answers guests and the pool controller."""

    authentication: Authentication
    polls: Polls
    store: Store
    stops: Stops
    clock: Clock
    observer: PollObserver
    on_refusal: OnRefusal

    def policy(self) -> Policy:
        """Return the shares in force."""
        return self.polls.handouts.policy()

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return (
            Route(
                dispatch.DISPATCH_PATH, guarded(self.dispatch, self.on_refusal), methods=["POST"]
            ),
            Route(
                dispatch.DESIRED_REPLICAS_PATH,
                guarded(self.desired_replicas, self.on_refusal),
                methods=["GET"],
            ),
            Route(
                dispatch.ROLL_SIGNALS_PATH,
                guarded(self.roll_signals, self.on_refusal),
                methods=["GET"],
            ),
            Route(
                dispatch.POD_STOPPED_PATH,
                guarded(self.pod_stopped, self.on_refusal),
                methods=["POST"],
            ),
        )

    async def dispatch(self, request: Request) -> Response:
        """Answer a poll: 200 with a job, 204 without one, 410 to shut the VM down."""
        started = self.clock.monotonic()
        wait = requested_wait(request.headers.get("prefer"))
        identity: RunnerIdentity | None = None
        outcome = "error"
        try:
            identity = await self.authentication.runner(request.headers.get("authorization"))
            # Existing pollers send `{}`; the content has no meaning.
            await read_body(request, MAX_POLL_BYTES)
            response, outcome = await self._poll(request, identity, wait)
        except errors.Unauthorized:
            outcome = "unauthorized"
            # Not after the refusal of the token itself, which would last as long as it is repeated.
            if identity is not None:
                self.authentication.refuse(request.headers.get("authorization"))
            raise
        finally:
            pool = self.polls.pool_of(identity) if identity is not None else ""
            seconds = None if wait else self.clock.monotonic() - started
            self.observer.request(pool, outcome, seconds)
        return response

    async def _poll(
        self, request: Request, identity: RunnerIdentity, wait: timedelta
    ) -> tuple[Response, str]:
        async def disconnected() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        # The client learns from this header that it need not pause before its next poll.
        applied = {"Preference-Applied": f"wait={int(wait.total_seconds())}"} if wait else {}
        try:
            job = await self.polls.poll(identity, wait, disconnected)
        except Drained as drained:
            gone = answer(410, {"error": dispatch.DRAIN, "reason": drained.reason})
            return (
                gone,
                "pod_committed" if drained.reason == dispatch.DRAIN_POD_COMMITTED else "drain",
            )
        if job is None:
            return Response(status_code=204, headers=applied), "empty"
        body = {
            "encoded_jit_config": job.jit.reveal(),
            "owner": job.owner,
            "workflow_job_id": job.job_id,
        }
        return answer(200, body), "served"

    async def desired_replicas(self, request: Request) -> Response:
        """Return the demand for the runners of a pool."""
        await self._require(request, "get")
        pool = _parameter(request, "fleet")
        signals = await self.store.scaling_signals(pool, self.clock.now(), policy=self.policy())
        body = {
            "fleet": pool,
            "claimed": signals.claimed,
            "occupied": signals.occupied,
            "queued": signals.queued,
            "withheld": signals.withheld,
            "p95_concurrent_last_hour": signals.p95_concurrent_last_hour,
        }
        return answer(200, body)

    async def roll_signals(self, request: Request) -> Response:
        """Return the first polls of a pool's Pods, and the jobs that ended since a time, by image."""
        await self._require(request, "get")
        pool, since = _parameter(request, "pool"), time_parameter(request, "since")
        signals = await self.store.roll_signals(pool, since)
        body = {
            "pool": pool,
            "pods": {name: {"first_poll_at": at} for name, at in signals.first_polls.items()},
            "images": {
                image: {"finished": jobs.finished, "failed": jobs.failed}
                for image, jobs in signals.images.items()
            },
        }
        return answer(200, body)

    async def pod_stopped(self, request: Request) -> Response:
        """Take the report of a Pod that stopped; a repeated one is harmless."""
        await self._require(request, "patch", "status")
        report = await decoded(request, StoppedPod)
        await self.stops.pod_stopped(report.pod_name, report.ended_at)
        return Response(status_code=204)

    async def _require(self, request: Request, verb: str, subresource: str = "") -> None:
        """Require a right on RunnerPools; existing controllers expect 401 without it."""
        try:
            await self.authentication.caller(
                request.headers.get("authorization"), verb, subresource
            )
        except errors.Forbidden as error:
            raise errors.Unauthorized(str(error)) from None


def requested_wait(header: str | None) -> timedelta:
    """Return how long a client lets its poll be held, within the limit; zero without the preference."""
    found = _WAIT.search(header[:256]) if header else None
    return min(timedelta(seconds=int(found[1])), MAX_WAIT) if found else timedelta()


def _parameter(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if not value or len(value) > 253:
        raise errors.BadRequest(f"the parameter {name} is missing or too long")
    return identifier(f"the parameter {name}", value)


def time_parameter(request: Request, name: str) -> datetime:
    """Return a time of the query."""
    value = {"at": _parameter(request, name)}
    try:
        return msgspec.convert(value, _Moment, strict=False).at
    except msgspec.ValidationError as error:
        raise errors.BadRequest(f"the parameter {name} is no time: {error}") from None
