"""Watches: the initial events, if requested, and then every change, until the timeout or a disconnect.

Lines are encoded once and shared by all watchers; changes of one commit are sent together. A watcher that reads too
slowly is ended with a 410; it never delays others and never misses a change silently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from math import inf

import msgspec
from msgspec.structs import replace

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.selectors import FieldTerm
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import END, JSON, Request, Send, run_while_connected
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import ServedResource
from bramley.apiserver.rest import negotiation
from bramley.apiserver.rest.get_list import check_version_syntax
from bramley.apiserver.rest.negotiation import PLAIN, Form, View, view_of, with_include_object
from bramley.apiserver.rest.request_options import ListOptions
from bramley.apiserver.rest.server import Server, decoded, served_bytes
from bramley.apiserver.store.errors import Closed, Compacted, FutureRevision, Overflowed
from bramley.apiserver.store.records import Change, Record, watch_line
from bramley.apiserver.store.subscriptions import Subscription

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_HEADERS = [JSON, (b"cache-control", b"no-cache, private")]
_START = {"type": "http.response.start", "status": 200, "headers": _HEADERS}
# A shorter wait is below the resolution of the clock, and would be repeated for ever.
_MIN_WAIT = 0.001


class Watch(msgspec.Struct):
    """One watch."""

    server: Server
    resource: ServedResource
    namespace: str | None
    options: ListOptions
    view: View
    send: Send
    ends_at: float
    has_columns: bool = False
    last_bookmark: int = 0
    sending_since: float = inf

    async def run(self) -> None:
        """Send all events; return at the timeout or when the connection breaks."""
        # The connection is broken, so nothing more can be sent.
        with contextlib.suppress(ConnectionError):
            await self.send(_START)
            await self._send_events_or_error()
            await self.send(END)

    async def _send_events_or_error(self) -> None:
        try:
            await self._send_events()
        except ApiError as error:
            await self._send_chunk(watch_line("ERROR", error.encoded()))
        except Overflowed as error:
            await self._send_chunk(watch_line("ERROR", status.expired(str(error)).encoded()))
        except Closed:
            # The client resumes with a new watch at the next process.
            return

    async def _send_events(self) -> None:
        store = self.server.store
        start = self._start()
        # Nothing may be awaited between the list and the subscription, or changes in between would be lost.
        records = (
            store.list(self.resource.stored_name, self.namespace)
            if self._sends_initial_events
            else []
        )
        with self._subscribe(start) as subscription:
            if self._sends_initial_events:
                await self._send_initial(records, start)
            await self._follow(subscription)

    @property
    def _sends_initial_events(self) -> bool:
        if self.options.initial is not None:
            return self.options.initial
        return self.options.version in {"", "0"}

    def _start(self) -> int:
        current = self.server.store.revision
        version = int(self.options.version or 0)
        if not self._sends_initial_events and version:
            return version
        if version > current:
            raise status.version_too_large(version, current)
        return current

    def _subscribe(self, start: int) -> Subscription:
        stored = self.resource.stored_name
        try:
            return self.server.store.watch(stored, namespace=self.namespace, since=start)
        except Compacted as gone:
            raise status.expired(
                f"too old resource version: {gone.requested} ({gone.oldest})"
            ) from None
        except FutureRevision as future:
            # The client saw a later version than exists, so the store was replaced since.
            message = f"too large resource version: {future.requested} ({future.current})"
            raise status.expired(message) from None

    async def _send_initial(self, records: list[Record], start: int) -> None:
        selected = (each for each in records if self.options.selection.matches(each))
        lines = [watch_line("ADDED", self._encode(each)) for each in selected]
        if self.options.bookmarks:
            self.last_bookmark = start
            lines.append(self._bookmark_line(start, initial_end=True))
        if lines:
            await self._send_chunk(b"".join(lines))

    async def _follow(self, subscription: Subscription) -> None:
        clock = self.server.clock
        now = clock.monotonic()
        bookmark_at = self._next_bookmark(now)
        while now < self.ends_at:
            remaining = min(self.ends_at, bookmark_at) - now
            changes = await subscription.next(max(remaining, _MIN_WAIT))
            if changes:
                await self._send_changes(changes)
            now = clock.monotonic()
            if now >= bookmark_at:
                # Its revision excludes changes that are still buffered: a client that resumes from a bookmark must not miss them.
                await self._send_bookmark(subscription.revision)
                bookmark_at = self._next_bookmark(now)

    def _next_bookmark(self, now: float) -> float:
        settings = self.server.settings
        last_at = self.ends_at - settings.bookmark_before_end.total_seconds()
        if not self.options.bookmarks or now >= last_at:
            return inf
        return min(now + settings.bookmark_every.total_seconds(), last_at)

    async def _send_changes(self, changes: Iterable[Change]) -> None:
        selection = self.options.selection
        if selection.is_everything and self.view is PLAIN and self._is_stored_form:
            await self._send_chunk(b"".join([each.line() for each in changes]))
            return
        lines = [line for each in changes if (line := self._line(each))]
        if lines:
            await self._send_chunk(b"".join(lines))

    @property
    def _is_stored_form(self) -> bool:
        resource = self.resource
        return resource.api_version == resource.stored_api_version and resource.conversion is None

    def _line(self, change: Change) -> bytes:
        """Return the event of a change for this watch's selection, or nothing."""
        matches = self.options.selection.matches
        before = change.previous is not None and matches(change.previous)
        after = change.verb != "DELETED" and matches(change.record)
        if after:
            return watch_line("MODIFIED" if before else "ADDED", self._encode(change.record))
        if not before:
            return b""
        if change.verb == "DELETED" or change.previous is None:
            return watch_line("DELETED", self._encode(change.record))
        # It left the selection: this watcher gets its last matching state, with the version of the change.
        return watch_line("DELETED", self._encode(_at_version(change.previous, change.rv)))

    def _encode(self, record: Record) -> bytes:
        return self._to_view(served_bytes(record, self.resource))

    def _to_view(self, body: bytes) -> bytes:
        if self.view is PLAIN:
            return body
        # Only the first table of a watch has column definitions.
        first, self.has_columns = not self.has_columns, True
        now = self.server.clock.now
        return negotiation.convert_object(
            body, self.resource, self.view, now=now, with_columns=first
        )

    def _bookmark_line(self, revision: int, *, initial_end: bool = False) -> bytes:
        return watch_line(
            "BOOKMARK", self._to_view(bookmark_object(self.resource, revision, initial_end))
        )

    async def _send_bookmark(self, revision: int) -> None:
        if revision > self.last_bookmark:
            self.last_bookmark = revision
            await self._send_chunk(self._bookmark_line(revision))

    def is_stuck(self) -> bool:
        """Return whether the client has not read a chunk for longer than the send deadline."""
        waited = self.server.clock.monotonic() - self.sending_since
        return waited >= self.server.settings.send_deadline.total_seconds()

    async def _send_chunk(self, chunk: bytes) -> None:
        # `is_stuck` reads this; a timeout for each chunk would cost as much as sending it.
        self.sending_since = self.server.clock.monotonic()
        await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
        self.sending_since = inf


def bookmark_object(resource: ServedResource, revision: int, initial_end: bool) -> bytes:  # noqa: FBT001 - one flag
    """Return the object of a bookmark, which contains the version up to which all events were sent."""
    meta: dict[str, object] = {"resourceVersion": str(revision)}
    if initial_end:
        meta["annotations"] = {INITIAL_EVENTS_END: "true"}
    return resource.prefix + b'"metadata":' + msgspec.json.encode(meta) + b"}"


async def watch(
    server: Server,
    request: Request,
    target: Target,
    *,
    options: ListOptions,
    send: Send,
    is_allowed: Callable[[], bool],
) -> None:
    """Serve one watch until it ends, the client disconnects, or `is_allowed` returns False."""
    check_version_syntax(options.version)
    seconds = _duration_seconds(server, options)
    view = view_of(request)
    stream = Watch(
        server=server,
        resource=target.resource,
        namespace=target.namespace or None,
        options=options,
        view=with_include_object(view, request) if view.form is Form.TABLE else view,
        send=send,
        ends_at=server.clock.monotonic() + seconds,
    )
    run = stream.run()
    if not await run_while_connected(run, request, is_stuck=stream.is_stuck, is_allowed=is_allowed):
        with contextlib.suppress(ConnectionError):
            await send(END)


def from_legacy_path(target: Target, options: ListOptions) -> tuple[Target, ListOptions]:
    """Return the target and options of the watch that a deprecated path below `/watch/` means."""
    selection = options.selection
    if target.name:
        only = FieldTerm("metadata.name", target.name, equal=True)
        selection = replace(selection, fields=(*selection.fields, only))
    return target._replace(name=""), replace(options, watch=True, selection=selection)


def _duration_seconds(server: Server, options: ListOptions) -> float:
    if options.timeout_seconds:
        return options.timeout_seconds
    shortest, longest = server.settings.watch_duration
    return server.rng.uniform(shortest.total_seconds(), longest.total_seconds())


def _at_version(record: Record, version: int) -> Record:
    body = decoded(record)
    body["metadata"]["resourceVersion"] = str(version)
    return Record(record.key, version, msgspec.json.encode(body), record.labels, record.fields)
