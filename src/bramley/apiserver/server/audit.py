"""The audit log: one JSON line for each write and each privileged read, without any body.

Entries are batched for a moment, then encoded and written by a thread. After an orderly stop the log is complete. After a
kill the entries of the last moment may be missing, also those of writes; entries of writes hold the object's revision and
each start that of the store, so that such a gap can be detected. Not logged: renewals of Leases and writes of Events.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import queue
import secrets
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from bramley.apiserver.http.exchange import Request
from bramley.apiserver.http.request_info import RequestInfo
from bramley.base import log
from bramley.base.clock import Clock

logger = log.get(__name__)

FILE = "audit.log"
_READS = frozenset({"GET", "HEAD"})
_SECRETS = "secrets"
_STOP_TIMEOUT_SECONDS = 5.0
_RENEWALS = frozenset({"update", "patch"})
# Responses of these groups hold tokens or repeat questions about rights; there is no stored object to take a digest of.
_REVIEW_GROUPS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


class Settings(msgspec.Struct, frozen=True):
    """The size of the log files, how long entries are batched, and how many may wait for the disk."""

    file_bytes: int = 16 * 1024 * 1024
    files: int = 8
    flush_interval: timedelta = timedelta(seconds=0.2)
    queue_limit: int = 50_000


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


# The metadata of a response without a stored object.
_NO_OBJECT = _Metadata()


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One line, in this order; empty fields are left out."""

    time: datetime
    id: str
    user: str = ""
    groups: tuple[str, ...] = ()
    verb: str = ""
    code: int
    impersonated_by: str = ""
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    user_agent: str = ""
    source: str = ""
    uid: str = ""
    resource_version: str = ""
    sha256: str = ""


class _Entry(NamedTuple):
    number: int
    time: datetime
    request: Request
    code: int
    body: bytes


def is_audited(request: Request) -> bool:
    """Return whether a request gets an entry: it may write, reads Secrets or a backup, or impersonates a user."""
    return (
        request.method not in _READS
        or _SECRETS in request.path
        or request.authenticated_user is not request.user
    )


class AuditLog:
    """One audit log; `record` runs on the event loop, everything else in a thread.

    Not `logging.handlers.QueueHandler`: a LogRecord, a locked queue and a wake-up of the thread for each entry cost the event
    loop ten microseconds instead of a third of one, and `QueueListener.stop` waits without limit for a disk that hangs.
    """

    def __init__(self, path: Path, *, clock: Clock, settings: Settings | None = None) -> None:
        self._clock = clock
        self._settings = settings or Settings()
        self._files = _RotatingFiles(path, self._settings)
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._batch: list[_Entry] = []
        # Only the loop changes the first two, only the thread the third, so none of them needs a lock.
        self._accepted = 0
        self._dropped = 0
        self._finished = 0
        self._unreported_drops = 0
        self._queue: queue.SimpleQueue[list[_Entry] | dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._thread.start()

    @property
    def lines(self) -> int:
        """Return the number of lines written since the start."""
        return self._files.written

    @property
    def lost(self) -> int:
        """Return the number of lines lost since the start: the queue was full, or the disk refused them."""
        return self._dropped + self._files.lost

    def record_start(self, revision: int) -> None:
        """Record that the server started, and at which revision of its store."""
        self._queue.put({"time": self._clock.now(), "started": True, "revision": revision})

    def record(self, request: Request, code: int, body: bytes = b"") -> None:
        """Add an entry for an answered request; it is encoded later, in the thread."""
        # Entries that the thread has not finished count too: a disk that hangs must not fill the memory.
        if self._accepted - self._finished >= self._settings.queue_limit:
            self._dropped += 1
            self._unreported_drops += 1
            return
        if not self._batch:
            delay = self._settings.flush_interval.total_seconds()
            asyncio.get_running_loop().call_later(delay, self._flush)
        self._accepted += 1
        self._batch.append(_Entry(next(self._numbers), self._clock.now(), request, code, body))

    def close(self) -> None:
        """Write all entries; a disk that hangs delays this by a few seconds at most."""
        self._flush()
        self._queue.put(None)
        self._thread.join(_STOP_TIMEOUT_SECONDS)

    def _flush(self) -> None:
        if self._unreported_drops:
            self._queue.put({"time": self._clock.now(), "lost": self._unreported_drops})
            self._unreported_drops = 0
        if self._batch:
            self._queue.put(self._batch)
            self._batch = []

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            if isinstance(batch, dict):
                self._files.append([msgspec.json.encode(batch) + b"\n"])
                continue
            lines = (self._line(entry) for entry in batch)
            self._files.append([msgspec.json.encode(line) + b"\n" for line in lines if line])
            self._finished += len(batch)
        self._files.close()

    def _line(self, entry: _Entry) -> _Line | None:
        request, info = entry.request, entry.request.info
        if _is_routine(info):
            return None
        stored = _stored_object(info, entry)
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        return _Line(
            time=entry.time,
            id=f"{self._prefix}-{entry.number}",
            user=request.user.name,
            groups=request.user.groups,
            verb=info.verb,
            code=entry.code,
            impersonated_by=request.authenticated_user.name
            if request.authenticated_user is not request.user
            else "",
            group=info.api_group,
            resource=resource,
            namespace=info.namespace,
            # The name of a created object may be known only from the response.
            name=stored.name or info.name,
            path="" if info.is_resource_request else info.path,
            user_agent=request.header(b"user-agent")[:200],
            source=(request.scope.get("client") or ("",))[0],
            uid=stored.uid,
            resource_version=stored.resource_version,
            sha256=_digest(info, entry) if stored is not _NO_OBJECT else "",
        )


def _is_routine(info: RequestInfo) -> bool:
    if info.resource == "events":
        return info.verb not in {"delete", "deletecollection"}
    return info.resource == "leases" and info.verb in _RENEWALS


def _stored_object(info: RequestInfo, entry: _Entry) -> _Metadata:
    """Return the metadata of the object that a write stored."""
    if not entry.body or entry.code >= 300 or entry.request.method in _READS:
        return _NO_OBJECT
    if info.subresource == "token" or info.api_group in _REVIEW_GROUPS:
        return _NO_OBJECT
    try:
        return msgspec.json.decode(entry.body, type=_Object).metadata
    except msgspec.DecodeError:
        return _NO_OBJECT


def _digest(info: RequestInfo, entry: _Entry) -> str:
    """Return the digest of the stored object; none of a Secret, whose content could be guessed from it."""
    return "" if info.resource == _SECRETS else hashlib.sha256(entry.body).hexdigest()


class _RotatingFiles:
    """The current file and the older ones; a full disk costs lines, never a response."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self._path = path
        self._settings = settings
        self._out: IO[bytes] | None = None
        self._failing = False
        self.written = 0
        self.lost = 0

    def append(self, lines: list[bytes]) -> None:
        try:
            for line in lines:
                self._file_for(len(line)).write(line)
            if self._out is not None:
                self._out.flush()
            self._failing = False
            self.written += len(lines)
        except OSError as error:
            # Some of them may have reached the file; all are counted as lost.
            self.lost += len(lines)
            if not self._failing:
                logger.error("Audit log cannot be written", path=self._path, reason=str(error))  # noqa: TRY400 - our logger
            self._failing = True

    def close(self) -> None:
        if self._out is not None:
            try:
                os.fsync(self._out.fileno())
                self._out.close()
            except OSError as error:
                logger.warning("Syncing audit log failed", reason=str(error))
            self._out = None

    def _file_for(self, size_bytes: int) -> IO[bytes]:
        if self._out is not None and self._out.tell() + size_bytes > self._settings.file_bytes:
            self.close()
            self._rotate()
        if self._out is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._out = os.fdopen(descriptor, "ab")
        return self._out

    def _rotate(self) -> None:
        """Rename each file to the next older name; the oldest is replaced."""
        numbers = range(1, self._settings.files)
        older = [self._path.with_name(f"{self._path.name}.{number}") for number in numbers]
        # The oldest first: each rename frees the name that the next one needs.
        for target, source in zip(
            reversed(older), reversed([self._path, *older[:-1]]), strict=True
        ):
            if source.exists():
                source.replace(target)
