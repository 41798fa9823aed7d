"""metrics.k8s.io: the usage of Nodes and Pods, queried from their agents for each request.

Nothing is stored. An agent's numbers count only for its own Node and for the Pods that are bound to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from bramley.api.names import agent
from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.metadata import timestamp
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.nodes import kubelet_client
from bramley.apiserver.nodes.usage import Kubelets, Stats, Summary
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import request_options
from bramley.apiserver.rest.server import Server, decoded
from bramley.apiserver.store.damage import DECODE_ERRORS
from bramley.apiserver.store.records import Key, Record

_NODES, _PODS = "nodes", "pods"
_NODE_NAME = "spec.nodeName"


async def read_nodes(server: Server, request: Request, target: Target) -> Response:
    """Return the usage of Nodes; those whose agent does not report it are left out."""
    records = _selected_records(server, request, target, Key(_NODES, "", target.name))
    summaries = await _summaries(server, {each.key.name for each in records})
    items = [
        _node(server, each, summaries[each.key.name].node)
        for each in records
        if each.key.name in summaries
    ]
    return _response([each for each in items if each], target)


async def read_pods(server: Server, request: Request, target: Target) -> Response:
    """Return the usage of Pods; those whose agent does not report it are left out."""
    records = _selected_records(server, request, target, Key(_PODS, target.namespace, target.name))
    summaries = await _summaries(server, {each.fields.get(_NODE_NAME, "") for each in records})
    items = [_pod(server, each, summaries.get(each.fields.get(_NODE_NAME, ""))) for each in records]
    return _response([each for each in items if each], target)


def _selected_records(server: Server, request: Request, target: Target, key: Key) -> list[Record]:
    """Return the Nodes or Pods that the request selects."""
    if key.name:
        record = server.store.get(key)
        return [record] if record is not None else []
    listing = request_options.list_options(request, target.resource)
    if listing.watch:
        raise status.method_not_allowed()
    records = server.store.list(key.resource, key.namespace or None)
    return [each for each in records if listing.selection.matches(each)]


async def _summaries(server: Server, names: Iterable[str]) -> dict[str, Summary]:
    """Return the summaries from the agents of these Nodes, by Node."""
    urls: dict[str, str] = {}
    for name in names:
        record = server.store.get(Key(_NODES, "", name)) if name else None
        url = _url(record) if record is not None else ""
        if url:
            urls[name] = url
    summaries = await _kubelets(server).usage.summaries(urls.values())
    return {name: summaries[url] for name, url in urls.items() if url in summaries}


def _kubelets(server: Server) -> Kubelets:
    if server.nodes is None:
        raise status.unavailable("this server is not connected to nodes")
    return server.nodes


def _url(record: Record) -> str:
    try:
        return kubelet_client.kubelet_url(decoded(record))
    except (ApiError, *DECODE_ERRORS):
        # A Node without a valid address has no metrics.
        return ""


def _node(server: Server, record: Record, used: Stats) -> Json | None:
    usage = _usage(used)
    if usage is None:
        return None
    return {**_common_fields(server, record, usage[0]), "usage": usage[1]}


def _pod(server: Server, record: Record, summaries: Summary | None) -> Json | None:
    pod = decoded(record)
    reference = (record.key.namespace, record.key.name, pod["metadata"]["uid"])
    for each in summaries.pods if summaries else ():
        if (each.pod_ref.namespace, each.pod_ref.name, each.pod_ref.uid) == reference:
            usages = [(container.name, _usage(container)) for container in each.containers]
            measured = [(name, usage) for name, usage in usages if usage is not None]
            if not measured:
                return None
            containers = [{"name": name, "usage": usage[1]} for name, usage in measured]
            oldest = min(usage[0] for _, usage in measured)
            return {**_common_fields(server, record, oldest), "containers": containers}
    return None


def _usage(used: Stats) -> tuple[datetime, Json] | None:
    """Return the time and the usage, or None if either is unknown."""
    cpu, memory = used.cpu, used.memory
    if cpu is None or memory is None:
        return None
    if cpu.usage_nano_cores is None or memory.working_set_bytes is None:
        return None
    amounts = {
        "cpu": f"{max(0, cpu.usage_nano_cores)}n",
        "memory": f"{max(0, memory.working_set_bytes) // 1024}Ki",
    }
    return cpu.time, amounts


def _common_fields(server: Server, record: Record, at: datetime) -> Json:
    key = record.key
    return {
        "metadata": {
            "name": key.name,
            **({"namespace": key.namespace} if key.namespace else {}),
            "creationTimestamp": timestamp(server.clock.now()),
            **({"labels": dict(record.labels)} if record.labels else {}),
        },
        "timestamp": timestamp(at),
        "window": f"{agent.USAGE_WINDOW.total_seconds():g}s",
    }


def _response(items: list[Json], target: Target) -> Response:
    resource = target.resource
    if not target.name:
        listing = {**_type_meta(resource, resource.list_kind), "metadata": {}, "items": items}
        return Response(msgspec.json.encode(listing))
    if not items:
        raise status.not_found(resource.details(target.name))
    return Response(msgspec.json.encode({**_type_meta(resource, resource.kind), **items[0]}))


def _type_meta(resource: ServedResource, kind: str) -> Json:
    return {"kind": kind, "apiVersion": resource.api_version}
