"""The Kubernetes client as far as the runtime needs it; `kube.client.Client` implements it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from bramley.api.meta import K, Object
from bramley.kube import selectors
from bramley.kube.codec import Listing
from bramley.kube.selectors import Selector
from bramley.kube.watch_stream import WatchEvent


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of the objects of a kind: one namespace or all, with label and field selectors."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @classmethod
    def of(
        cls, namespace: str | None = None, *, labels: Selector = None, fields: Selector = None
    ) -> Selection:
        """Return the selection; a mapping selects objects with equal values."""
        return cls(namespace, selectors.of_labels(labels), selectors.of_fields(fields))


EVERYTHING = Selection()


class OpenWatch(Protocol[K]):
    """A watch that the server has accepted."""

    def batches(self) -> AsyncGenerator[list[WatchEvent[K]], None]:
        """Yield the events in batches, each with all events that have arrived."""
        ...


class Reader(Protocol):
    """Reads objects."""

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        """Return the current object; raise NotFound when there is none."""
        ...

    def pages(
        self,
        kind: type[K],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
    ) -> AsyncIterator[Listing[K]]:
        """Yield all objects page by page, as of one version."""
        ...

    def watch(
        self,
        kind: type[K],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
        resource_version: str | None = None,
        timeout: timedelta = timedelta(minutes=5),
    ) -> AbstractAsyncContextManager[OpenWatch[K]]:
        """Watch the changes after a version."""
        ...


class Writer(Protocol):
    """Writes objects."""

    async def create(self, obj: K, *, namespace: str | None = None) -> K:
        """Create the object and return it as stored."""
        ...

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
        """Merge the patch into the object; with a version or uid, only into exactly that one."""
        ...

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
        """Apply server-side: own exactly these fields of the object, creating it if necessary."""
        ...

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
        """Delete the object; with a version or uid, only exactly that one."""
        ...


class Kube(Reader, Writer, Protocol):
    """Reads and writes objects."""
