"""The operations of `bramley apiserver backup` and `restore`, on a running server or on the data folder of a stopped one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

from bramley.apiserver.admin import archives, backups
from bramley.apiserver.admin.archives import Manifest
from bramley.apiserver.pki import private_files
from bramley.apiserver.store import backup, damage, data_folder
from bramley.apiserver.store.sqlite_file import Snapshot
from bramley.base import errors
from bramley.kube import config_loader, status
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request, Stream

Progress = Callable[[int, int], None]

# An upper bound: a server makes a few thousand revisions per second.
REVISIONS_PER_SECOND = 100_000
SLACK = timedelta(days=1)
_RESPONSE_TIMEOUT = timedelta(minutes=10)
_READ_TIMEOUT = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore; `previous` is the folder with the replaced data."""

    manifest: Manifest
    revision: int
    previous: Path | None


async def back_up_server(
    kubeconfig: Path | None, context: str | None, out: Path, *, progress: Progress
) -> Manifest:
    """Make a backup of a running server; the file is created when the backup is complete."""
    _check_output(out)
    transport = HttpTransport(config_loader.load(kubeconfig, context))
    request = Request("GET", backups.PATH, accept="application/x-tar", deadline=_RESPONSE_TIMEOUT)
    try:
        with private_files.replace(out) as (file, temporary):
            async with transport.stream(request) as answer:
                if answer.status != 200:
                    raise await _refusal(answer)
                await _copy(answer, file, progress)
            file.flush()
            # Checked before the file gets its final name, so that an incomplete download never appears to be a backup.
            return archives.check(temporary)
    finally:
        await transport.close()


def back_up_folder(folder: Path, out: Path) -> Manifest:
    """Make a backup of the data folder of a stopped server."""
    _check_output(out)
    if not (folder / data_folder.DATABASE).exists() and not (folder / data_folder.NOTE).exists():
        raise errors.BadConfiguration(f"{folder} has no data of a server; check --data-dir")
    lock = _lock(folder, "use --kubeconfig instead of --data-dir to back up a running server")
    with contextlib.ExitStack() as undo:
        undo.callback(lock.release)
        data_folder.finish_restore(folder)
        content = backup.read(folder / data_folder.DATABASE, check_record=damage.check_envelope)
        small = archives.small_parts(folder, folder / archives.KUBECONFIG)
        temporary = undo.enter_context(backups.scratch(folder))
        archive = backups.build(content, small, temporary, datetime.now(UTC))
        with private_files.replace(out) as (file, _):
            for chunk in archive.chunks():
                file.write(chunk)
    return archive.manifest


def restore(folder: Path, source: Path, *, force: bool, now: datetime) -> Restored:
    """Replace the data in a folder by a backup; an invalid backup, or data without `force`, is refused without changes."""
    archives.check(source)
    lock = _lock(folder, "stop the server first, or restore into another folder")
    with contextlib.ExitStack() as undo:
        undo.callback(lock.release)
        # An interrupted restore is finished first: it determines what data the folder has.
        _recover(folder, force=force)
        present = [name for name in _replaced() if (folder / name).exists()]
        if present and not force:
            raise errors.BadConfiguration(
                f"{folder} already has data; choose another folder with --data-dir, or replace it with --force "
                "(the existing data is moved aside, not deleted)"
            )
        # Clients may have seen later revisions than those of the backup.
        before = _revision_of(folder / data_folder.DATABASE)
        stage = data_folder.stage_restore(folder)
        manifest = archives.unpack(source, stage)
        # In the staging folder: the data folder is unchanged until everything is ready.
        revision = _raise_revisions(stage, manifest, before=before, now=now)
        previous = _unused_path(folder / f"before-restore-{now:%Y%m%dT%H%M%S}")
        data_folder.install_restore(folder, previous.name, replaced=_replaced())
        if not present:
            previous.rmdir()
    return Restored(manifest, revision, previous if present else None)


def revision_step(content: Snapshot, *, made: datetime, now: datetime, before: int | None) -> int:
    """Return the increment of revisions that puts them above any revision a client may have seen since the backup.

    It exceeds what a server can have made in the time that passed, and the last revision in the folder by a day's worth. It
    stays far below 2**53, above which JSON readers round.
    """
    passed = max(now - made, timedelta()) + SLACK
    step = int(passed.total_seconds()) * REVISIONS_PER_SECOND
    if before is None:
        return step
    return max(step, before - content.revision + int(SLACK.total_seconds()) * REVISIONS_PER_SECOND)


def _raise_revisions(stage: Path, manifest: Manifest, *, before: int | None, now: datetime) -> int:
    database = stage / data_folder.DATABASE
    content = backup.read(database, check_record=damage.check_envelope)
    if content.revision != manifest.revision:
        raise errors.BadConfiguration(
            f"the backup's database is at revision {content.revision}, but its manifest states {manifest.revision}; "
            "use another backup"
        )
    raised = backup.with_raised_revisions(
        content, revision_step(content, made=manifest.made, now=now, before=before)
    )
    database.unlink()
    backup.write(database, raised)
    return raised.revision


def _revision_of(database: Path) -> int | None:
    """Return the revision of the existing data; None if there is none or it is damaged."""
    if not database.exists():
        return None
    try:
        return backup.read(database).revision
    except errors.BadConfiguration:
        return None  # damaged data is a reason to restore


def _recover(folder: Path, *, force: bool) -> None:
    try:
        data_folder.finish_restore(folder)
    except errors.BadConfiguration:
        if not force:
            raise
        (folder / data_folder.NOTE).unlink()


def _unused_path(path: Path) -> Path:
    """Return a path that does not exist, so that no earlier state is overwritten."""
    others = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return path if not path.exists() else next(each for each in others if not each.exists())


def _replaced() -> list[str]:
    return list(dict.fromkeys(name.split("/")[0] for name in archives.NAMES))


def _lock(folder: Path, advice: str) -> data_folder.FolderLock:
    try:
        return data_folder.lock_folder(folder)
    except data_folder.FolderInUse as error:
        raise errors.BadConfiguration(
            f"the data folder {folder} is in use by process {error.holder}; {advice}"
        ) from None


def _check_output(out: Path) -> None:
    """Refuse to overwrite a file that is not a backup, before any work is done."""
    if out.exists():
        try:
            archives.check(out)
        except errors.BadConfiguration:
            raise errors.BadConfiguration(
                f"{out} exists and is not a complete backup; choose another file with --out"
            ) from None
    private_files.check_writable(out)


async def _copy(response: Stream, file: IO[bytes], progress: Progress) -> None:
    total, received = int(response.headers.get("content-length", "0")), 0
    chunks = response.chunks
    while True:
        try:
            async with asyncio.timeout(_READ_TIMEOUT.total_seconds()):
                chunk = await anext(chunks, b"")
        except TimeoutError as error:
            raise errors.TimedOut(
                f"the server stopped sending the backup after {received:,} bytes"
            ) from error
        if not chunk:
            return
        await asyncio.to_thread(file.write, chunk)
        received += len(chunk)
        progress(received, total)


async def _refusal(response: Stream) -> Exception:
    body = b"".join([chunk async for chunk in response.chunks])
    if response.status == 404:
        return errors.BadConfiguration(
            "this server makes no backups: it is not an embedded API of Bramley with a data folder"
        )
    return status.error("making a backup", status.parse(body), code=response.status)
