"""The contract with existing fleets as a table: for each request its exact status, headers and body.

In bodies `<jit>` and `<job>` stand for the JIT configuration and the job of the only live claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from bramley.api.names import dispatch as names
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.github import webhook_signatures
from bramley.kube.transport import Request, Response
from tests.dispatch_world import POOL, SECRET, DispatchWorld, a_dispatch_world
from tests.scenarios.dispatch.contract_polls import NO_TOKEN, POLLS, Ask, Row, poll

SINCE = "2026-01-01T00:00:00Z"
NOT_A_USER = '{"error":"the token is not valid for the API server"}'


def get(
    path: str, query: Mapping[str, str], *, caller: str = "admin", after: Ask | None = None
) -> Ask:
    async def ask(world: DispatchWorld) -> Response:
        if after is not None:
            await after(world)
        return await world.send(
            path, method="GET", token=await a_caller(world, caller), query=query
        )

    return ask


async def a_caller(world: DispatchWorld, kind: str) -> Secret | None:
    if kind == "runner":
        return await world.a_token(await world.a_pod())
    if kind == "without rights":
        return world.world.api.tokens.issue("alice")
    return world.world.token if kind == "admin" else None


async def a_claim_and_a_queued_job(world: DispatchWorld) -> Response:
    return await poll(jobs=2)(world)


def demand(**values: int) -> str:
    zero = dict.fromkeys(("claimed", "occupied", "queued", "withheld"), 0)
    body = {"fleet": POOL, **zero, "p95_concurrent_last_hour": 0, **values}
    return msgspec.json.encode(body).decode()


REPLICAS = names.DESIRED_REPLICAS_PATH
SIGNALS = names.ROLL_SIGNALS_PATH
MAY_NOT_GET = '{"error":"alice may not get runnerpools in namespace default"}'
SIGNALS_OF_ONE_POD = (
    '{"pool":"macos","pods":{"macos-runner-0001":{"first_poll_at":"2026-01-01T00:00:01Z"}},'
    '"images":{}}'
)
CONTROLLER = (
    Row("demand of an idle pool", get(REPLICAS, {"fleet": POOL}), 200, demand()),
    Row(
        "demand with a claim and a queued job",
        get(REPLICAS, {"fleet": POOL}, after=a_claim_and_a_queued_job),
        200,
        demand(claimed=1, occupied=1, queued=1),
    ),
    Row(
        "demand of an unknown fleet",
        get(REPLICAS, {"fleet": "other"}),
        200,
        demand().replace(POOL, "other"),
    ),
    Row(
        "demand without a fleet",
        get(REPLICAS, {}),
        400,
        '{"error":"the parameter fleet is missing or too long"}',
    ),
    Row("demand without a token", get(REPLICAS, {"fleet": POOL}, caller=""), 401, NO_TOKEN),
    Row("demand for a guest", get(REPLICAS, {"fleet": POOL}, caller="runner"), 401, NOT_A_USER),
    Row(
        "demand without the right",
        get(REPLICAS, {"fleet": POOL}, caller="without rights"),
        401,
        MAY_NOT_GET,
    ),
    Row(
        "signals of a pool without polls",
        get(SIGNALS, {"pool": POOL, "since": SINCE}),
        200,
        '{"pool":"macos","pods":{},"images":{}}',
    ),
    Row(
        "signals after a first poll",
        get(SIGNALS, {"pool": POOL, "since": SINCE}, after=poll(polls=2)),
        200,
        SIGNALS_OF_ONE_POD,
    ),
    Row(
        "signals without a time",
        get(SIGNALS, {"pool": POOL}),
        400,
        '{"error":"the parameter since is missing or too long"}',
    ),
    Row(
        "signals without a pool",
        get(SIGNALS, {"since": SINCE}),
        400,
        '{"error":"the parameter pool is missing or too long"}',
    ),
    Row(
        "signals with another time",
        get(SIGNALS, {"pool": POOL, "since": "yesterday"}),
        400,
        '{"error":"the parameter since is no time: Invalid RFC3339 encoded datetime - at `$.at`"}',
    ),
    Row(
        "signals without a token",
        get(SIGNALS, {"pool": POOL, "since": SINCE}, caller=""),
        401,
        NO_TOKEN,
    ),
)


def stopped(body: str, *, caller: str = "admin", after: Ask | None = None) -> Ask:
    async def ask(world: DispatchWorld) -> Response:
        if after is not None:
            await after(world)
        token = await a_caller(world, caller)
        return await world.send(names.POD_STOPPED_PATH, token=token, body=body.encode())

    return ask


REPORT = '{"pod_name":"macos-runner-0001","ended_at":"2026-01-01T00:01:00Z"}'
STOPPED = (
    Row("a Pod with a claim stopped", stopped(REPORT, after=poll(jobs=1)), 204),
    Row("an unknown Pod stopped", stopped(REPORT), 204),
    Row("a report twice", stopped(REPORT, after=stopped(REPORT, after=poll(jobs=1))), 204),
    Row(
        "a report without a time",
        stopped('{"pod_name":"x"}'),
        400,
        '{"error":"the body is invalid: Object missing required field `ended_at`"}',
    ),
    Row(
        "a report without a Pod",
        stopped('{"ended_at":"2026-01-01T00:01:00Z"}'),
        400,
        '{"error":"the body is invalid: Object missing required field `pod_name`"}',
    ),
    Row(
        "a report with another time",
        stopped('{"pod_name":"x","ended_at":"now"}'),
        400,
        '{"error":"the body is invalid: Invalid RFC3339 encoded datetime - at `$.ended_at`"}',
    ),
    Row(
        "a report that is no JSON",
        stopped("pod_name=x"),
        400,
        '{"error":"the body is invalid: JSON is malformed: invalid character (byte 0)"}',
    ),
    Row("a report without a token", stopped(REPORT, caller=""), 401, NO_TOKEN),
    Row("a report of a guest", stopped(REPORT, caller="runner"), 401, NOT_A_USER),
    Row(
        "a report without the right",
        stopped(REPORT, caller="without rights"),
        401,
        '{"error":"alice may not patch runnerpools/status in namespace default"}',
    ),
)


def webhook(
    body: bytes = b"{}",
    *,
    event: str = "workflow_job",
    signature: str | None = "",
    times: int = 1,
    guid: str = "1-{}",
) -> Ask:
    """Send a webhook, signed unless another signature is given."""

    async def ask(world: DispatchWorld) -> Response:
        value = webhook_signatures.signature(body, SECRET) if signature == "" else signature
        signed = ((names.SIGNATURE_HEADER, value),) if value is not None else ()
        for number in range(times):
            headers = (
                *signed,
                ("X-GitHub-Event", event),
                ("X-GitHub-Delivery", guid.format(number)),
            )
            response = await world.send(names.WEBHOOK_PATH, body=body, headers=headers)
        return response

    return ask


async def webhook_as_a_form(world: DispatchWorld) -> Response:
    assert world.relay.target is not None
    body = b"payload=%7B%7D"
    signed = (names.SIGNATURE_HEADER, webhook_signatures.signature(body, SECRET))
    headers = (signed, ("X-GitHub-Event", "ping"))
    form = "application/x-www-form-urlencoded"
    request = Request("POST", names.WEBHOOK_PATH, {}, body, form, headers=headers)
    return await world.relay.target.send(request)


async def webhook_while_the_database_is_closed(world: DispatchWorld) -> Response:
    await world.store.close()
    return await webhook()(world)


BAD_SIGNATURE = '{"error":"the signature does not match the webhook secret"}'
WEBHOOKS = (
    Row("a signed webhook", webhook(), 200, '{"result":"stored"}'),
    Row("a repeated delivery", webhook(times=2, guid="1"), 200, '{"result":"duplicate"}'),
    Row("the same content", webhook(times=2), 200, '{"result":"duplicate"}'),
    Row("another event", webhook(event="ping"), 200, '{"result":"ignored"}'),
    Row(
        "a form",
        webhook_as_a_form,
        400,
        '{"error":"the body is a form; set the content type of the webhook to application/json"}',
    ),
    Row(
        "no signature",
        webhook(signature=None),
        401,
        '{"error":"the header X-Hub-Signature-256 is missing"}',
    ),
    Row("another signature", webhook(signature="sha256=" + "0" * 64), 403, BAD_SIGNATURE),
    Row("a signature of another form", webhook(signature="0" * 64), 403, BAD_SIGNATURE),
    Row(
        "a body beyond 256 KiB",
        webhook(b"x" * (256 * 1024 + 1)),
        413,
        '{"error":"the body exceeds 262144 bytes"}',
    ),
    Row(
        "no database",
        webhook_while_the_database_is_closed,
        503,
        '{"error":"the database is closed"}',
    ),
)


@pytest.mark.parametrize(
    "row", [*POLLS, *CONTROLLER, *STOPPED, *WEBHOOKS], ids=lambda row: row.name
)
async def test_answer_is_that_of_the_contract(tmp_path: Path, row: Row) -> None:
    async with a_dispatch_world(tmp_path) as world:
        response = await row.ask(world)
        body = await masked(world, response.body.decode())

        assert (response.status, body) == (row.status, row.body)
        assert dict(response.headers) == expected_headers(row, response)


async def masked(world: DispatchWorld, body: str) -> str:
    # One row closes the database.
    with suppress(errors.Unavailable):
        for each in await world.store.live_claims():
            jit = each.claim.jit.reveal() if each.claim.jit else "-"
            body = body.replace(jit, "<jit>").replace(f":{each.claim.job_id}}}", ":<job>}")
    return body


def expected_headers(row: Row, response: Response) -> dict[str, str]:
    if row.status == 204:
        return dict(row.headers or {})
    kind = "text/plain; charset=utf-8" if row.status == 405 else "application/json"
    length = {"content-length": str(len(response.body)), "content-type": kind}
    return {**length, **(row.headers or {})}
