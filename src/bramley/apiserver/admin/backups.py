"""`GET /bramley/v1/backup`: a consistent backup of the running server as a tar, for `system:masters` alone.

The snapshot is taken between two commits and costs the server a copy of lists; a thread builds the database file from
it, so that writes go on meanwhile. One backup at a time: each needs the disk space of the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bramley.apiserver.admin.endpoints import Endpoint
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import Request, Send
from bramley.apiserver.store import backup
from bramley.apiserver.store.data_folder import DATABASE
from bramley.apiserver.store.sqlite_file import Snapshot
from bramley.apiserver.store.store import Store
from bramley.base import log
from bramley.base.clock import Clock

if TYPE_CHECKING:
    from bramley.apiserver.admin.archives import Archive, Part

logger = log.get(__name__)

PATH = "/bramley/v1/backup"
_SCRATCH = ".backup-"
_RETRY_AFTER_SECONDS = 5


class Backups:
    """Makes backups of one data folder while its server runs."""

    def __init__(self, store: Store, *, folder: Path, kubeconfig: Path, clock: Clock) -> None:
        self._store = store
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._busy = False
        clean(folder)

    @property
    def endpoint(self) -> Endpoint:
        """Return the endpoint that sends a backup; for masters only, because it holds every Secret and every key."""
        return Endpoint(PATH, "GET", self._serve, "the backup cannot be made")

    async def _serve(self, request: Request, send: Send) -> None:
        await self.send(send, request.settings)

    async def send(self, send: Send, settings: Settings) -> None:
        """Send one backup as the response."""
        async with self._archive() as archive:
            length = str(archive.size_bytes).encode()
            headers = [(b"content-type", b"application/x-tar"), (b"content-length", length)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            chunks = archive.chunks()
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                # A client that stops reading must not keep the disk space forever.
                async with asyncio.timeout(settings.send_deadline.total_seconds()):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            logger.info("Sent backup", revision=archive.manifest.revision, bytes=length.decode())

    @contextlib.asynccontextmanager
    async def _archive(self) -> AsyncIterator[Archive]:
        if self._busy:
            message = "another backup is being made, please try again later"
            raise ApiError(429, "TooManyRequests", message, retry_after=_RETRY_AFTER_SECONDS)
        from bramley.apiserver.admin import archives

        self._busy = True
        try:
            # No await between these two: objects, tokens and keys must be of the same moment.
            content = self._store.snapshot()
            small = archives.small_parts(self._folder, self._kubeconfig)
            with scratch(self._folder) as temporary:
                yield await asyncio.to_thread(build, content, small, temporary, self._clock.now())
        finally:
            self._busy = False


def build(content: Snapshot, small: Sequence[Part], temporary: Path, now: datetime) -> Archive:
    """Write the database file into a temporary folder and return the backup with it and the other parts."""
    import importlib.metadata

    from bramley.apiserver.admin import archives

    database = temporary / DATABASE
    backup.write(database, content)
    parts = (archives.Part(DATABASE, database), *small)
    manifest = archives.Manifest(
        format=archives.FORMAT,
        bramley=importlib.metadata.version("bramley"),
        made=now,
        revision=content.revision,
        objects=sum(map(len, content.records.values())),
        parts=tuple(part.entry() for part in parts),
    )
    return archives.Archive(manifest, parts)


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield a private temporary folder."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder, ignore_cleanup_errors=True) as at:
        yield Path(at)


def clean(folder: Path) -> None:
    """Remove the temporary folders of interrupted backups."""
    for temporary in folder.glob(f"{_SCRATCH}*"):
        shutil.rmtree(temporary, ignore_errors=True)
