"""The answers of the agent's server: refusals, streams, and what is used in the two forms that a kubelet has for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from aiohttp import web

from bramley.agent.serving.log_options import Unprocessable
from bramley.agent.serving.sources import NodeUsage, PodUsage, Used
from bramley.base import errors, log

logger = log.get(__name__)

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_NANO = 10**9


class TooMany(errors.Unavailable):
    """So much is under way that nothing more is begun."""


def failed(code: int, why: str) -> web.Response:
    """Return a refusal as text."""
    return web.Response(status=code, text=why)


def of_error(error: Exception | None) -> web.Response:
    """Return a failure as an answer; what nobody foresaw is logged and told without its details."""
    if isinstance(error, web.HTTPException):
        return failed(error.status, error.reason)
    known: tuple[tuple[type[Exception], int], ...] = (
        (errors.NotFound, 404),
        (Unprocessable, 422),
        (errors.Refused, 400),
        (TooMany, 429),
        (errors.Unavailable, 503),
    )
    for kind, code in known:
        if isinstance(error, kind):
            return failed(code, str(error))
    logger.error("Request failed", exc=error)
    return failed(500, "Internal Server Error")


async def stream(
    request: web.Request, chunks: AsyncIterator[bytes], *, deadline: timedelta
) -> web.StreamResponse:
    """Send chunks as they come; a reader that takes nothing for too long is cut off."""
    answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
    answer.enable_chunked_encoding()
    await answer.prepare(request)
    limit = deadline.total_seconds()
    try:
        async for chunk in chunks:
            async with asyncio.timeout(limit):
                await answer.write(chunk)
        async with asyncio.timeout(limit):
            await answer.write_eof()
    except TimeoutError:
        logger.warning("Cut off a reader", path=request.path, reason="it reads too slowly")
        _abort(request)
    except ConnectionError:
        pass
    except (errors.BramleyError, OSError) as error:
        # A log that breaks off in the middle must not look whole.
        logger.error("A log ended early", exc=error, path=request.path)  # noqa: TRY400 - our logger
        _abort(request)
    return answer


def _abort(request: web.Request) -> None:
    transport = request.transport
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


def summary(usage: NodeUsage) -> web.Response:
    """Return what is used as the kubelet's summary."""
    body = msgspec.json.encode(
        {
            "node": {
                "nodeName": usage.node,
                "startTime": _time(usage.started_at),
                **_used(usage.used),
                **_disk(usage),
            },
            "pods": [_pod(each) for each in usage.pods],
        }
    )
    return web.Response(body=body, content_type="application/json")


def _pod(each: PodUsage) -> dict[str, Any]:
    started = {"startTime": _time(each.started_at)} if each.started_at else {}
    used = _used(each.used)
    return {
        "podRef": {"name": each.pod, "namespace": each.namespace, "uid": each.uid},
        **started,
        "containers": [{"name": each.container, **started, **used}],
        **used,
    }


def _used(used: Used) -> dict[str, Any]:
    cpu: dict[str, Any] = {"time": _time(used.at)}
    if used.cores is not None:
        cpu["usageNanoCores"] = round(used.cores * _NANO)
    cpu["usageCoreNanoSeconds"] = round(used.cpu_seconds * _NANO)
    memory = {"time": _time(used.at), "workingSetBytes": used.memory_bytes}
    return {"cpu": cpu, "memory": memory}


def _disk(usage: NodeUsage) -> dict[str, Any]:
    if usage.disk is None:
        return {}
    free, total = usage.disk.free, usage.disk.total
    told = {"availableBytes": free, "capacityBytes": total, "usedBytes": max(0, total - free)}
    return {"fs": {"time": _time(usage.used.at), **told}}


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def resource_metrics(usage: NodeUsage) -> web.Response:
    """Return what is used as the kubelet's resource metrics."""
    text = "".join(_metrics(usage))
    return web.Response(body=text.encode(), headers={"Content-Type": _TEXT})


def _metrics(usage: NodeUsage) -> Iterator[str]:
    of_pods = [(_labels(each), each) for each in usage.pods]
    of_containers = [(_labels(each, container=each.container), each) for each in usage.pods]
    node = [("", usage)]
    for scope, found in (("container", of_containers), ("node", node), ("pod", of_pods)):
        yield from _family(
            f"{scope}_cpu_usage_seconds_total",
            "counter",
            [(labels, f"{each.used.cpu_seconds:.9f}", each.used.at) for labels, each in found],
        )
        yield from _family(
            f"{scope}_memory_working_set_bytes",
            "gauge",
            [(labels, str(each.used.memory_bytes), each.used.at) for labels, each in found],
        )
    yield from _family(
        "container_start_time_seconds",
        "gauge",
        [
            (labels, f"{each.started_at.timestamp():.3f}", each.used.at)
            for labels, each in of_containers
            if each.started_at
        ],
    )
    yield from _family("resource_scrape_error", "gauge", [("", "0", None)])


def _family(name: str, kind: str, samples: list[tuple[str, str, datetime | None]]) -> Iterator[str]:
    if samples:
        yield f"# TYPE {name} {kind}\n"
    for labels, value, at in samples:
        when = f" {round(at.timestamp() * 1000)}" if at else ""
        yield f"{name}{labels} {value}{when}\n"


def _labels(each: PodUsage, **more: str) -> str:
    named = {**more, "namespace": each.namespace, "pod": each.pod}
    # Names of Kubernetes hold nothing that would need escaping.
    return "{" + ",".join(f'{key}="{value}"' for key, value in named.items()) + "}"
