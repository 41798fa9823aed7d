"""What the runtime needs of a Kubernetes client, and no more; `kube.client.Client` is one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from bramley.api.meta import K, Object
from bramley.kube import selectors
from bramley.kube.listing import Listing
from bramley.kube.selectors import Selector
from bramley.kube.watching import WatchEvent


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind are meant: those of one namespace or all, with these labels and fields."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @classmethod
    def of(
        cls, namespace: str | None = None, *, labels: Selector = None, fields: Selector = None
    ) -> Selection:
        """Return the selection; a mapping means that all its entries are equal."""
        return cls(namespace, selectors.of_labels(labels), selectors.of_fields(fields))


EVERYTHING = Selection()


class OpenWatch(Protocol[K]):
    """A watch that the server has accepted."""

    def batches(self) -> AsyncGenerator[list[WatchEvent[K]], None]:
        """Yield the events in lists, each with what came at once."""
        ...


class Reader(Protocol):
    """Reads objects."""

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        """Return the object as it is now; raise NotFound when there is none."""
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
        """Follow the changes after a version."""
        ...


class Writer(Protocol):
    """Writes objects."""

    async def create(self, thing: K, *, namespace: str | None = None) -> K:
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

    async def json_patch(
        self,
        kind: type[K],
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> K:
        """Change the object by steps that all happen or none."""
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
        """Own exactly these fields of the object, creating it if need be."""
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
