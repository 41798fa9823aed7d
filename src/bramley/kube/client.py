"""The client: typed verbs over a transport.

Objects are partial Structs, so there is no replace of them: writing one back would drop the fields it does not know. Writes
are create, patches, apply and delete; what was read as plain JSON values is whole and may be put back. Reads are repeated while the server is away, writes are not; see `retrying`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import msgspec

from bramley.api.autoscaling import Scale
from bramley.api.core import Pod, ServiceAccount
from bramley.api.meta import K, Object, Resource, to_wire
from bramley.base.clock import Clock, SystemClock
from bramley.kube import bodies, listing, logs, paths, selectors
from bramley.kube.calls import Calls
from bramley.kube.decoding import as_wire, codec
from bramley.kube.listing import Listing
from bramley.kube.retrying import Patience
from bramley.kube.selectors import Selector
from bramley.kube.transport import Request, Transport
from bramley.kube.watching import Watch

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_ANYTHING = Resource("", "v1", "Anything", "anything", namespaced=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """How patient the client is, and how late a server may end a watch before it counts as dead."""

    patience: Patience = field(default_factory=Patience)
    watch_margin: timedelta = timedelta(seconds=15)
    log_silence: timedelta = timedelta(hours=4)


class Client:
    """Talks to one Kubernetes API; close it, or use it as an async context."""

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
        self._calls = Calls(transport, self._clock, self._settings.patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back the transport's connections."""
        await self._transport.close()

    def within(self, deadline: timedelta) -> Client:
        """Return a client over the same transport whose calls end within this time."""
        patience = dataclasses.replace(self._settings.patience, deadline=deadline)
        settings = dataclasses.replace(self._settings, patience=patience)
        return Client(self._transport, clock=self._clock, settings=settings)

    async def get(
        self,
        kind: type[K],
        name: str,
        *,
        namespace: str | None = None,
        resource_version: str | None = None,
    ) -> K:
        """Return one object; given a version, a cache that is at least as fresh may answer."""
        path = paths.of_object(kind.resource, name, namespace=namespace)
        query = bodies.known(resourceVersion=resource_version)
        return codec(kind).object(await self._calls.read(Request("GET", path, query)))

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
        """Return all objects that match, fetched in pages; a list that expires on the way starts over once."""
        query = selectors.query(labels, fields) | {"limit": str(page_size)}
        query |= bodies.known(resourceVersion=resource_version)
        first = Request("GET", paths.of_collection(kind.resource, namespace), query)
        return await listing.whole(first, self._fetching(kind))

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
        """Yield the objects that match page by page; raises Gone when the list expires on the way."""
        query = selectors.query(labels, fields) | {"limit": str(page_size)}
        query |= bodies.known(resourceVersion=resource_version)
        first = Request("GET", paths.of_collection(kind.resource, namespace), query)
        return listing.pages(first, self._fetching(kind))

    def _fetching(self, kind: type[K]) -> listing.Fetch[K]:
        pages = codec(kind)

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
        timeout: timedelta = timedelta(minutes=5),  # noqa: ASYNC109 - how long the server shall watch
    ) -> AsyncIterator[Watch[K]]:
        """Open a watch, for `async for event in watch` or `async for events in watch.batches()`."""
        query = selectors.query(labels, fields) | bodies.known(resourceVersion=resource_version)
        query |= {"watch": "true", "timeoutSeconds": str(max(int(timeout.total_seconds()), 1))}
        query |= {"allowWatchBookmarks": "true"} if bookmarks else {}
        request = Request("GET", paths.of_collection(kind.resource, namespace), query)
        longest = timeout + self._settings.watch_margin
        async with self._calls.stream(request) as stream:
            ends = asyncio.get_running_loop().time() + longest.total_seconds()
            yield Watch(stream.chunks, codec(kind).events, ends=ends)

    async def create(self, thing: K, *, namespace: str | None = None) -> K:
        """Create an object, in the namespace given or in the one it names."""
        place = namespace if namespace is not None else thing.metadata.namespace
        body = await self._post(thing.resource, to_wire(thing), namespace=place)
        return codec(type(thing)).object(body)

    async def create_wire(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str | None = None
    ) -> dict[str, Any]:
        """Create an object given as plain JSON values, and return what the server made of it."""
        return as_wire(resource, await self._post(resource, body, namespace=namespace))

    async def read_wire(self, path: str) -> dict[str, Any]:
        """Return what is at a path of the API that is no object of a kind, such as discovery, as plain JSON values."""
        return as_wire(_ANYTHING, await self._calls.read(Request("GET", path)))

    async def replace_wire(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> dict[str, Any]:
        """Put back a whole object that was read as plain JSON values; its version decides whether it is still that one."""
        name = body["metadata"]["name"]
        path = paths.of_object(resource, name, namespace=namespace, subresource=subresource)
        return as_wire(resource, await self._calls.write(_sending("PUT", path, body)))

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
        path = paths.of_object(kind.resource, name, namespace=namespace, subresource=subresource)
        body = bodies.guarded(patch, resource_version=resource_version, uid=uid)
        with bodies.another_uid_is_a_conflict():
            return codec(kind).object(await self._patch(path, body, MERGE_PATCH))

    async def json_patch(
        self,
        kind: type[K],
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> K:
        """Change an object by steps that all happen or none; a `test` that fails is InvalidSpec."""
        path = paths.of_object(kind.resource, name, namespace=namespace, subresource=subresource)
        return codec(kind).object(await self._patch(path, operations, JSON_PATCH))

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
        """Own exactly these fields, creating the object if need be; a field of another manager is a Conflict."""
        path = paths.of_object(kind.resource, name, namespace=namespace, subresource=subresource)
        whole = bodies.named(kind.resource, body, name=name, namespace=namespace)
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return codec(kind).object(await self._patch(path, whole, APPLY_PATCH, query))

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
        """Ask for an object's deletion; with a version or uid, only if it is still that one, else Conflict."""
        path = paths.of_object(kind.resource, name, namespace=namespace)
        options = bodies.delete_options(
            uid=uid, resource_version=resource_version, grace=grace, propagation=propagation
        )
        await self._calls.write(_sending("DELETE", path, options))

    async def delete_collection(
        self,
        kind: type[Object],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
        propagation: str | None = None,
    ) -> None:
        """Ask for the deletion of every object that matches."""
        path = paths.of_namespace(kind.resource, namespace)
        options = _sending("DELETE", path, bodies.delete_options(propagation=propagation))
        query = selectors.query(labels, fields)
        await self._calls.write(dataclasses.replace(options, query=query))

    async def get_scale(
        self, kind: type[Object], name: str, *, namespace: str | None = None
    ) -> Scale:
        """Return how many replicas an object wants and has."""
        path = paths.of_object(kind.resource, name, namespace=namespace, subresource="scale")
        return codec(Scale).object(await self._calls.read(Request("GET", path)))

    async def scale(
        self, kind: type[Object], name: str, *, namespace: str | None = None, replicas: int
    ) -> Scale:
        """Set how many replicas an object wants, whatever its kind."""
        path = paths.of_object(kind.resource, name, namespace=namespace, subresource="scale")
        body = {"spec": {"replicas": replicas}}
        return codec(Scale).object(await self._patch(path, body, MERGE_PATCH))

    async def evict(self, pod_name: str, namespace: str, *, grace: timedelta | None = None) -> None:
        """Delete a Pod if its disruption budget allows it; RateLimited when it does not now."""
        path = paths.of_object(Pod.resource, pod_name, namespace=namespace, subresource="eviction")
        body = bodies.eviction(pod_name, namespace, grace)
        await self._calls.write_once(_sending("POST", path, body))

    async def bind(self, pod: Pod, node: str) -> None:
        """Give exactly this Pod a Node; one that has a Node already is a Conflict."""
        path = paths.of_object(
            Pod.resource, pod.name, namespace=pod.namespace, subresource="binding"
        )
        await self._calls.write(_sending("POST", path, bodies.binding(pod, node)))

    async def request_token(
        self,
        service_account: str,
        namespace: str,
        *,
        audiences: Sequence[str],
        expires: timedelta,
        bound_to: Object | None = None,
    ) -> bodies.IssuedToken:
        """Return a new token of a ServiceAccount; bound to an object it dies with it."""
        path = paths.of_object(
            ServiceAccount.resource, service_account, namespace=namespace, subresource="token"
        )
        body = bodies.token_request(audiences, expires, bound_to)
        return bodies.issued_token(await self._calls.write(_sending("POST", path, body)))

    def logs(
        self,
        name: str,
        namespace: str,
        *,
        container: str | None = None,
        follow: bool = False,
        tail: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield a container's output as it comes; close the generator to end it early."""
        path = paths.of_object(Pod.resource, name, namespace=namespace, subresource="log")
        query = bodies.known(container=container, follow="true" if follow else None)
        query |= {} if tail is None else {"tailLines": str(tail)}
        request = Request("GET", path, query, accept="*/*")
        patience = self._settings.patience
        silence = self._settings.log_silence if follow else patience.deadline
        return logs.chunks(self._calls.stream(request), silence=silence)

    async def _post(
        self, resource: Resource, body: Mapping[str, Any], *, namespace: str | None
    ) -> bytes:
        path = paths.of_namespace(resource, namespace)
        return await self._calls.write(_sending("POST", path, body))

    async def _patch(
        self, path: str, body: object, content_type: str, query: Mapping[str, str] | None = None
    ) -> bytes:
        payload = msgspec.json.encode(body)
        return await self._calls.write(Request("PATCH", path, query or {}, payload, content_type))


def _sending(method: str, path: str, body: object) -> Request:
    return Request(method, path, {}, msgspec.json.encode(body), JSON)
