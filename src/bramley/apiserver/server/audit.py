"""The audit log: one JSON line for each write and each privileged read, and never a body.

Lines are gathered for a moment and written by a thread of their own. What an orderly end leaves is complete. After a kill
the lines of the last moment may be missing, those of writes too; lines of writes carry the object's revision and each
start tells the store's, so that such a gap can be seen. What is not told: renewals of Leases and writes of Events.
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

from bramley.apiserver.auth import attributes
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.http.exchange import Request
from bramley.base import log
from bramley.base.clock import Clock

logger = log.get(__name__)

FILE = "audit.log"
_READS = frozenset({"GET", "HEAD"})
_SECRETS = "secrets"
_END_WITHIN_SECONDS = 5.0
_RENEWALS = frozenset({"update", "patch"})
# Answers to these hold tokens or repeat questions about rights; there is no object to take a digest of.
_REVIEWS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


class Settings(msgspec.Struct, frozen=True):
    """How large the log gets, and how long lines wait."""

    file_bytes: int = 16 * 1024 * 1024
    files: int = 8
    gathered_for: timedelta = timedelta(seconds=0.2)
    most_waiting: int = 50_000


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


# Of a request that made no state there is nothing to tell.
_NOTHING = _Metadata()


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One line, in this order; what is empty is left out."""

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


class _Noted(NamedTuple):
    number: int
    at: datetime
    request: Request
    code: int
    body: bytes


def wants(request: Request) -> bool:
    """Tell whether a request is worth a line: it may write, read Secrets or a backup, or act for somebody else."""
    return (
        request.method not in _READS
        or _SECRETS in request.path
        or request.sender is not request.caller
    )


class Log:
    """One audit log; `note` on the loop, everything else in a thread."""

    def __init__(self, path: Path, *, clock: Clock, settings: Settings | None = None) -> None:
        self._clock = clock
        self._settings = settings or Settings()
        self._files = _Files(path, self._settings)
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._gathered: list[_Noted] = []
        self._lost = 0
        self._all_lost = 0
        self._queue: queue.SimpleQueue[list[_Noted] | dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._thread.start()

    @property
    def lines(self) -> int:
        """Return how many lines were written since the start."""
        return self._files.written

    @property
    def lost(self) -> int:
        """Return how many lines were lost since the start: too many waited, or the disk did not take them."""
        return self._all_lost + self._files.lost

    def begin(self, revision: int) -> None:
        """Tell that a server began, and where its data stood."""
        self._queue.put({"time": self._clock.now(), "started": True, "revision": revision})

    def note(self, request: Request, code: int, body: bytes = b"") -> None:
        """Remember one answered request; nothing is encoded here."""
        if len(self._gathered) >= self._settings.most_waiting:
            self._lost += 1
            self._all_lost += 1
            return
        if not self._gathered:
            delay = self._settings.gathered_for.total_seconds()
            asyncio.get_running_loop().call_later(delay, self._hand_over)
        noted = _Noted(next(self._numbers), self._clock.now(), request, code, body)
        self._gathered.append(noted)

    def close(self) -> None:
        """Write all that was noted; a disk that hangs is not waited for longer than a moment."""
        self._hand_over()
        self._queue.put(None)
        self._thread.join(_END_WITHIN_SECONDS)

    def _hand_over(self) -> None:
        if self._lost:
            self._queue.put({"time": self._clock.now(), "lost": self._lost})
            self._lost = 0
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            self._files.append(self._lines(batch))
        self._files.close()

    def _lines(self, batch: list[_Noted] | dict[str, Any]) -> list[bytes]:
        if isinstance(batch, dict):
            return [msgspec.json.encode(batch) + b"\n"]
        told = (self._told(noted) for noted in batch)
        return [msgspec.json.encode(line) + b"\n" for line in told if line]

    def _told(self, noted: _Noted) -> _Line | None:
        request = noted.request
        asked = attributes.of_request(request.caller, request.method, request.path, request.query)
        if _is_routine(asked):
            return None
        made = _of_object(asked, noted)
        return _Line(
            time=noted.at,
            id=f"{self._prefix}-{noted.number}",
            user=request.caller.name,
            groups=request.caller.groups,
            verb=asked.verb,
            code=noted.code,
            impersonated_by=request.sender.name if request.sender is not request.caller else "",
            group=asked.group,
            resource=asked.whole_resource,
            namespace=asked.namespace,
            # Only the answer tells the name of what was created.
            name=made.name or asked.name,
            path=asked.path,
            user_agent=request.header(b"user-agent")[:200],
            source=(request.scope.get("client") or ("",))[0],
            uid=made.uid,
            resource_version=made.resource_version,
            sha256=_digest(asked, noted) if made is not _NOTHING else "",
        )


def _is_routine(asked: Attributes) -> bool:
    if asked.resource == "events":
        return asked.verb not in {"delete", "deletecollection"}
    return asked.resource == "leases" and asked.verb in _RENEWALS


def _of_object(asked: Attributes, noted: _Noted) -> _Metadata:
    """Return which state a write made."""
    if not noted.body or noted.code >= 300 or noted.request.method in _READS:
        return _NOTHING
    if asked.subresource == "token" or asked.group in _REVIEWS:
        return _NOTHING
    try:
        return msgspec.json.decode(noted.body, type=_Object).metadata
    except msgspec.DecodeError:
        return _NOTHING


def _digest(asked: Attributes, noted: _Noted) -> str:
    """Return the digest of what was stored; that of a Secret would let one guess what it holds."""
    return "" if asked.resource == _SECRETS else hashlib.sha256(noted.body).hexdigest()


class _Files:
    """The current file and those before it; a full disk costs lines, never an answer."""

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
                self._opened(len(line)).write(line)
            if self._out is not None:
                self._out.flush()
            self._failing = False
            self.written += len(lines)
        except OSError as error:
            # Some of them may be there; which ones only the file can tell.
            self.lost += len(lines)
            if not self._failing:
                logger.error("The audit log cannot be written", path=self._path, reason=str(error))  # noqa: TRY400 - our logger
            self._failing = True

    def close(self) -> None:
        if self._out is not None:
            try:
                os.fsync(self._out.fileno())
                self._out.close()
            except OSError as error:
                logger.warning("The audit log's end is not durable", reason=str(error))
            self._out = None

    def _opened(self, more: int) -> IO[bytes]:
        if self._out is not None and self._out.tell() + more > self._settings.file_bytes:
            self.close()
            self._rotate()
        if self._out is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._out = os.fdopen(descriptor, "ab")
        return self._out

    def _rotate(self) -> None:
        """Let each file take the place of the next older one; the oldest goes."""
        names = [
            self._path.with_name(f"{self._path.name}.{n}") for n in range(1, self._settings.files)
        ]
        for older, newer in zip(reversed(names), reversed([self._path, *names[:-1]]), strict=True):
            if newer.exists():
                newer.replace(older)
