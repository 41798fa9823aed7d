"""The responses of the kubelet endpoints: errors, streams, the stats summary and the resource metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from aiohttp import web

from bramley.agent.serving.log_options import Unprocessable
from bramley.agent.serving.sources import NodeUsage, PodUsage, UsageSample
from bramley.base import errors, log

logger = log.get(__name__)

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_NANO = 10**9


class TooManyStreams(errors.Unavailable):
    """The maximum number of log streams is reached."""


def text_error(code: int, message: str) -> web.Response:
    """Return an error as plain text."""
    return web.Response(status=code, text=message)


def error_response(error: Exception | None) -> web.Response:
    """Return the response for an error; an unexpected one is logged and returned without details."""
    if isinstance(error, web.HTTPException):
        return text_error(error.status, error.reason)
    statuses: tuple[tuple[type[Exception], int], ...] = (
        (errors.NotFound, 404),
        (Unprocessable, 422),
        (errors.Refused, 400),
        (TooManyStreams, 429),
        (errors.Unavailable, 503),
    )
    for error_type, code in statuses:
        if isinstance(error, error_type):
            return text_error(code, str(error))
    logger.error("Kubelet endpoint request failed", exc=error)
    return text_error(500, "Internal Server Error")


async def stream(
    request: web.Request, chunks: AsyncIterator[bytes], *, deadline: timedelta
) -> web.StreamResponse:
    """Stream chunks to the client; the connection of a client that reads too slowly is aborted."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    limit = deadline.total_seconds()
    try:
        async for chunk in chunks:
            async with asyncio.timeout(limit):
                await response.write(chunk)
        async with asyncio.timeout(limit):
            await response.write_eof()
    except TimeoutError:
        logger.warning("Aborting log stream", path=request.path, reason="client too slow")
        _abort(request)
    except ConnectionError:
        pass
    except (errors.BramleyError, OSError) as error:
        # Aborted instead of ended, so that the client does not take the log for complete.
        logger.error("Log stream failed", exc=error, path=request.path)  # noqa: TRY400 - our logger
        _abort(request)
    return response


def _abort(request: web.Request) -> None:
    transport = request.transport
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


def summary(usage: NodeUsage) -> web.Response:
    """Return the usage as the kubelet's stats summary."""
    body = msgspec.json.encode(
        {
            "node": {
                "nodeName": usage.node,
                "startTime": _time(usage.started_at),
                **_cpu_and_memory(usage.used),
                **_disk(usage),
            },
            "pods": [_pod(each) for each in usage.pods],
        }
    )
    return web.Response(body=body, content_type="application/json")


def _pod(each: PodUsage) -> dict[str, Any]:
    started = {"startTime": _time(each.started_at)} if each.started_at else {}
    used = _cpu_and_memory(each.used)
    return {
        "podRef": {"name": each.pod, "namespace": each.namespace, "uid": each.uid},
        **started,
        "containers": [{"name": each.container, **started, **used}],
        **used,
    }


def _cpu_and_memory(used: UsageSample) -> dict[str, Any]:
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
    usage_bytes = {
        "availableBytes": free,
        "capacityBytes": total,
        "usedBytes": max(0, total - free),
    }
    return {"fs": {"time": _time(usage.used.at), **usage_bytes}}


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def resource_metrics(usage: NodeUsage) -> web.Response:
    """Return the usage as the kubelet's resource metrics."""
    text = "".join(_metrics(usage))
    return web.Response(body=text.encode(), headers={"Content-Type": _TEXT})


def _metrics(usage: NodeUsage) -> Iterator[str]:
    pods = [(_labels(each), each) for each in usage.pods]
    containers = [(_labels(each, container=each.container), each) for each in usage.pods]
    node = [("", usage)]
    for scope, usages in (("container", containers), ("node", node), ("pod", pods)):
        yield from _family(
            f"{scope}_cpu_usage_seconds_total",
            "counter",
            [(labels, f"{each.used.cpu_seconds:.9f}", each.used.at) for labels, each in usages],
        )
        yield from _family(
            f"{scope}_memory_working_set_bytes",
            "gauge",
            [(labels, str(each.used.memory_bytes), each.used.at) for labels, each in usages],
        )
    yield from _family(
        "container_start_time_seconds",
        "gauge",
        [
            (labels, f"{each.started_at.timestamp():.3f}", each.used.at)
            for labels, each in containers
            if each.started_at
        ],
    )
    yield from _family("resource_scrape_error", "gauge", [("", "0", None)])


def _family(name: str, kind: str, samples: list[tuple[str, str, datetime | None]]) -> Iterator[str]:
    if samples:
        yield f"# TYPE {name} {kind}\n"
    for labels, value, at in samples:
        timestamp = f" {round(at.timestamp() * 1000)}" if at else ""
        yield f"{name}{labels} {value}{timestamp}\n"


def _labels(each: PodUsage, **extra: str) -> str:
    labels = {**extra, "namespace": each.namespace, "pod": each.pod}
    # Kubernetes names contain nothing that needs escaping.
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
