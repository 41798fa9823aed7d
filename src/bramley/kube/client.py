"""The client: typed verbs over a transport.

Objects are partial Structs, so they cannot be replaced: writing one back would drop the fields it does not know. Writes are
create, patches, apply and delete; what was read as plain JSON values is complete and may be replaced. Reads are repeated while
the server is unavailable, writes are not; see `api_calls`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import msgspec

from bramley.api.autoscaling import Scale
from bramley.api.core import Pod, ServiceAccount
from bramley.api.meta import K, Object, Resource, to_wire
from bramley.base.clock import Clock, SystemClock
from bramley.kube import api_requests, selectors
from bramley.kube.api_calls import ApiCalls, RetryPolicy, log_chunks
from bramley.kube.api_requests import collection_path, namespaced_path, object_path, without_none
from bramley.kube.codec import Fetch, Listing, codec_of, decode_json, list_all, list_pages
from bramley.kube.selectors import Selector
from bramley.kube.transport import CheckedTransport, Request, Transport
from bramley.kube.watch_stream import Watch

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_ANYTHING = Resource("", "v1", "Anything", "anything", namespaced=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Retries, and how late a server may end a watch before the connection counts as dead."""

    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    watch_margin: timedelta = timedelta(seconds=15)
    log_silence: timedelta = timedelta(hours=4)


class Client:
    """A client of one Kubernetes API; close it, or use it as an async context."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock or SystemClock()
        self._settings = settings or Settings()
        self._calls = ApiCalls(transport, self._clock, self._settings.retry_policy)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the transport's connections."""
        await self._transport.close()

    def within(self, deadline: timedelta) -> Client:
        """Return a client over the same transport whose calls end within this time."""
        retry_policy = dataclasses.replace(self._settings.retry_policy, deadline=deadline)
        settings = dataclasses.replace(self._settings, retry_policy=retry_policy)
        return Client(self._transport, clock=self._clock, settings=settings)

    def checked(self, check: Callable[[], None]) -> Client:
        """Return a client over the same transport whose requests are refused by the errors of a function."""
        transport = CheckedTransport(self._transport, check)
        return Client(transport, clock=self._clock, settings=self._settings)

    async def get(
        self,
        kind: type[K],
        name: str,
        *,
        namespace: str | None = None,
        resource_version: str | None = None,
    ) -> K:
        """Return one object; given a version, the server may use a cache that is at least as fresh."""
        path = object_path(kind.resource, name, namespace=namespace)
        query = without_none(resourceVersion=resource_version)
        return codec_of(kind).object(await self._calls.read(Request("GET", path, query)))

    async def list(
        self,
        kind: type[K],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
        page_size: int = 500,
        resource_version: str | None = None,
    ) -> Listing[K]:
        """Return all objects that match, fetched in pages; a list that expires meanwhile starts over once."""
        query = selectors.query(labels, fields) | {"limit": str(page_size)}
        query |= without_none(resourceVersion=resource_version)
        first = Request("GET", collection_path(kind.resource, namespace), query)
        return await list_all(first, self._page_fetcher(kind))

    def pages(
        self,
        kind: type[K],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
        page_size: int = 500,
        resource_version: str | None = None,
    ) -> AsyncGenerator[Listing[K], None]:
        """Yield the objects that match page by page; raise Gone when the list expires meanwhile."""
        query = selectors.query(labels, fields) | {"limit": str(page_size)}
        query |= without_none(resourceVersion=resource_version)
        first = Request("GET", collection_path(kind.resource, namespace), query)
        return list_pages(first, self._page_fetcher(kind))

    def _page_fetcher(self, kind: type[K]) -> Fetch[K]:
        pages = codec_of(kind)

        async def fetch(request: Request) -> Listing[K]:
            return pages.page(await self._calls.read(request))

        return fetch

    @asynccontextmanager
    async def watch(
        self,
        kind: type[K],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
        resource_version: str | None = None,
        bookmarks: bool = True,
        timeout: timedelta = timedelta(minutes=5),  # noqa: ASYNC109 - the server's own limit of the watch
    ) -> AsyncIterator[Watch[K]]:
        """Open a watch, for `async for event in watch` or `async for events in watch.batches()`."""
        query = selectors.query(labels, fields) | without_none(resourceVersion=resource_version)
        query |= {"watch": "true", "timeoutSeconds": str(max(int(timeout.total_seconds()), 1))}
        query |= {"allowWatchBookmarks": "true"} if bookmarks else {}
        request = Request("GET", collection_path(kind.resource, namespace), query)
        longest = timeout + self._settings.watch_margin
        async with self._calls.stream(request) as stream:
            # From the moment the server accepted the watch; opening it may have been retried.
            ends = asyncio.get_running_loop().time() + longest.total_seconds()
            yield Watch(stream.chunks, codec_of(kind).events, ends=ends)

    async def create(self, obj: K, *, namespace: str | None = None) -> K:
        """Create an object, in the namespace given or in the one it names."""
        target_namespace = namespace if namespace is not None else obj.metadata.namespace
        body = await self._post(obj.resource, to_wire(obj), namespace=target_namespace)
        return codec_of(type(obj)).object(body)

    async def create_wire(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str | None = None
    ) -> dict[str, Any]:
        """Create an object given as plain JSON values, and return what the server stored."""
        return decode_json(resource, await self._post(resource, body, namespace=namespace))

    async def read_wire(self, path: str) -> dict[str, Any]:
        """Return what is at a path of the API, such as discovery, as plain JSON values."""
        return decode_json(_ANYTHING, await self._calls.read(Request("GET", path)))

    async def replace_wire(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> dict[str, Any]:
        """Replace an object that was read as plain JSON values; a newer version on the server is a Conflict."""
        name = body["metadata"]["name"]
        path = object_path(resource, name, namespace=namespace, subresource=subresource)
        return decode_json(resource, await self._calls.write(_json_request("PUT", path, body)))

    async def merge_patch(
        self,
        kind: type[K],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
        uid: str | None = None,
    ) -> K:
        """Change the fields given; with a version or uid, only if the object is still that one, else Conflict."""
        path = object_path(kind.resource, name, namespace=namespace, subresource=subresource)
        body = api_requests.with_preconditions(patch, resource_version=resource_version, uid=uid)
        with api_requests.uid_mismatch_as_conflict():
            return codec_of(kind).object(await self._patch(path, body, MERGE_PATCH))

    async def json_patch(
        self,
        kind: type[K],
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> K:
        """Apply all of the operations to an object, or none; a `test` that fails is InvalidSpec."""
        path = object_path(kind.resource, name, namespace=namespace, subresource=subresource)
        return codec_of(kind).object(await self._patch(path, operations, JSON_PATCH))

    async def apply(
        self,
        kind: type[K],
        name: str,
        body: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> K:
        """Apply server-side: own exactly these fields, creating the object if necessary; a field of another manager is a Conflict."""
        path = object_path(kind.resource, name, namespace=namespace, subresource=subresource)
        config = api_requests.with_identity(kind.resource, body, name=name, namespace=namespace)
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return codec_of(kind).object(await self._patch(path, config, APPLY_PATCH, query))

    async def delete(
        self,
        kind: type[Object],
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace: timedelta | None = None,
        propagation: str | None = None,
    ) -> None:
        """Delete an object; with a version or uid, only if it is still that one, else Conflict."""
        path = object_path(kind.resource, name, namespace=namespace)
        options = api_requests.delete_options(
            uid=uid, resource_version=resource_version, grace=grace, propagation=propagation
        )
        await self._calls.write(_json_request("DELETE", path, options))

    async def delete_collection(
        self,
        kind: type[Object],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
        propagation: str | None = None,
    ) -> None:
        """Delete every object that matches."""
        path = namespaced_path(kind.resource, namespace)
        options = _json_request(
            "DELETE", path, api_requests.delete_options(propagation=propagation)
        )
        query = selectors.query(labels, fields)
        await self._calls.write(dataclasses.replace(options, query=query))

    async def get_scale(
        self, kind: type[Object], name: str, *, namespace: str | None = None
    ) -> Scale:
        """Return the desired and observed number of replicas of an object."""
        path = object_path(kind.resource, name, namespace=namespace, subresource="scale")
        return codec_of(Scale).object(await self._calls.read(Request("GET", path)))

    async def scale(
        self, kind: type[Object], name: str, *, namespace: str | None = None, replicas: int
    ) -> Scale:
        """Set the desired number of replicas of an object, whatever its kind."""
        path = object_path(kind.resource, name, namespace=namespace, subresource="scale")
        body = {"spec": {"replicas": replicas}}
        return codec_of(Scale).object(await self._patch(path, body, MERGE_PATCH))

    async def evict(
        self,
        pod_name: str,
        namespace: str,
        *,
        grace: timedelta | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete a Pod if its disruption budget allows it; RateLimited when it does not at present."""
        path = object_path(Pod.resource, pod_name, namespace=namespace, subresource="eviction")
        body = api_requests.eviction(pod_name, namespace, grace=grace, uid=uid)
        await self._calls.write_once(_json_request("POST", path, body))

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind exactly this Pod to a Node; a Pod that is bound already is a Conflict."""
        path = object_path(Pod.resource, pod.name, namespace=pod.namespace, subresource="binding")
        await self._calls.write(_json_request("POST", path, api_requests.binding(pod, node)))

    async def request_token(
        self,
        service_account: str,
        namespace: str,
        *,
        audiences: Sequence[str],
        expires: timedelta,
        bound_to: Object | None = None,
    ) -> api_requests.IssuedToken:
        """Return a new token of a ServiceAccount; bound to an object, it is invalid once that is deleted."""
        path = object_path(
            ServiceAccount.resource, service_account, namespace=namespace, subresource="token"
        )
        body = api_requests.token_request(audiences, expires, bound_to)
        return api_requests.issued_token(await self._calls.write(_json_request("POST", path, body)))

    def logs(
        self,
        name: str,
        namespace: str,
        *,
        container: str | None = None,
        follow: bool = False,
        tail: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield a container's output as it arrives; close the generator to end it early."""
        path = object_path(Pod.resource, name, namespace=namespace, subresource="log")
        query = without_none(container=container, follow="true" if follow else None)
        query |= {} if tail is None else {"tailLines": str(tail)}
        request = Request("GET", path, query, accept="*/*")
        retry_policy = self._settings.retry_policy
        silence = self._settings.log_silence if follow else retry_policy.deadline
        return log_chunks(self._calls.stream(request), silence=silence)

    async def _post(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str | None
    ) -> bytes:
        path = namespaced_path(resource, namespace)
        return await self._calls.write(_json_request("POST", path, body))

    async def _patch(
        self, path: str, body: object, content_type: str, query: Mapping[str, str] | None = None
    ) -> bytes:
        payload = msgspec.json.encode(body)
        return await self._calls.write(Request("PATCH", path, query or {}, payload, content_type))


def _json_request(method: str, path: str, body: object) -> Request:
    return Request(method, path, {}, msgspec.json.encode(body), JSON)
