"""What `bramley apiserver backup` and `restore` do: a backup through the running server or from a folder, and the way back."""

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
from bramley.apiserver.store import backup, data_folder, envelopes
from bramley.apiserver.store.sqlite_file import Snapshot
from bramley.base import errors
from bramley.kube import connecting, status
from bramley.kube.http import HttpTransport
from bramley.kube.transport import Request, Stream

Progress = Callable[[int, int], None]

# A server of ours makes a few thousand revisions a second; this many it never makes.
REVISIONS_PER_SECOND = 100_000
SLACK = timedelta(days=1)
_HEAD_WITHIN = timedelta(minutes=10)
_SILENCE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did; `aside` is where the data that was there before is now."""

    manifest: Manifest
    revision: int
    aside: Path | None


async def of_server(
    kubeconfig: Path | None, context: str | None, out: Path, *, progress: Progress
) -> Manifest:
    """Let the running server make a backup, and write it to a file that appears only when it is whole."""
    _check_place(out)
    transport = HttpTransport(connecting.find(kubeconfig, context))
    request = Request("GET", backups.PATH, accept="application/x-tar", deadline=_HEAD_WITHIN)
    try:
        with private_files.replacing(out) as (file, place):
            async with transport.stream(request) as answer:
                if answer.status != 200:
                    raise await _refusal(answer)
                await _copy(answer, file, progress)
            file.flush()
            return archives.check(place)
    finally:
        await transport.close()


def of_folder(folder: Path, out: Path) -> Manifest:
    """Make a backup of a data folder that no server uses."""
    _check_place(out)
    if not (folder / data_folder.DATABASE).exists() and not (folder / data_folder.NOTE).exists():
        raise errors.BadConfiguration(f"{folder} holds no data; name the folder with --data-dir")
    lock = _claimed(folder, "back it up while it runs with --kubeconfig instead of --data-dir")
    with contextlib.ExitStack() as undo:
        undo.callback(lock.release)
        data_folder.finish_restore(folder)
        content = backup.read(folder / data_folder.DATABASE, check_record=envelopes.check_envelope)
        small = archives.belongings(folder, folder / archives.KUBECONFIG)
        place = undo.enter_context(backups.scratch(folder))
        archive = backups.packed(content, small, place, datetime.now(UTC))
        with private_files.replacing(out) as (file, _):
            for chunk in archive.chunks():
                file.write(chunk)
    return archive.manifest


def restore(folder: Path, source: Path, *, force: bool, now: datetime) -> Restored:
    """Put a backup in the place of what a data folder holds; raise and change nothing if it is not good or not wanted."""
    archives.check(source)
    lock = _claimed(folder, "stop the server first, or restore into another folder")
    with contextlib.ExitStack() as undo:
        undo.callback(lock.release)
        _recover(folder, force=force)
        present = [name for name in _replaced() if (folder / name).exists()]
        if present and not force:
            raise errors.BadConfiguration(
                f"{folder} holds data already; choose another folder with --data-dir, or replace it with --force "
                "(what is there is moved aside, not deleted)"
            )
        before = _revision_of(folder / data_folder.DATABASE)
        stage = data_folder.stage_restore(folder)
        manifest = archives.unpack(source, stage)
        revision = _raise_revisions(stage, manifest, before=before, now=now)
        aside = _free(folder / f"before-restore-{now:%Y%m%dT%H%M%S}")
        data_folder.install_restore(folder, aside.name, replaced=_replaced())
        if not present:
            aside.rmdir()
    return Restored(manifest, revision, aside if present else None)


def step_of(content: Snapshot, *, made: datetime, now: datetime, before: int | None) -> int:
    """Return by how much revisions rise: above all that any client can have seen since the backup was made.

    That is more than a server can have made in the time that passed, and a day's worth more than what the folder itself
    tells. It stays far below 2**53, above which JSON readers begin to round.
    """
    passed = max(now - made, timedelta()) + SLACK
    step = int(passed.total_seconds()) * REVISIONS_PER_SECOND
    if before is None:
        return step
    return max(step, before - content.revision + int(SLACK.total_seconds()) * REVISIONS_PER_SECOND)


def _raise_revisions(stage: Path, manifest: Manifest, *, before: int | None, now: datetime) -> int:
    database = stage / data_folder.DATABASE
    content = backup.read(database, check_record=envelopes.check_envelope)
    if content.revision != manifest.revision:
        raise errors.BadConfiguration(
            f"the backup's database is at revision {content.revision}, its manifest tells {manifest.revision}; "
            "use another backup"
        )
    raised = backup.with_raised_revisions(content, step_of(content, made=manifest.made, now=now, before=before))
    database.unlink()
    backup.write(database, raised)
    return raised.revision


def _revision_of(database: Path) -> int | None:
    """Return how far the folder's own data had come, None if there is none that can be read."""
    if not database.exists():
        return None
    try:
        return backup.read(database).revision
    except errors.BadConfiguration:
        return None  # damaged data is what one restores over


def _recover(folder: Path, *, force: bool) -> None:
    try:
        data_folder.finish_restore(folder)
    except errors.BadConfiguration:
        if not force:
            raise
        (folder / data_folder.NOTE).unlink()


def _free(place: Path) -> Path:
    """Return a place that nothing stands at, so that no earlier state is overwritten."""
    places = (place.with_name(f"{place.name}-{number}") for number in itertools.count(2))
    return place if not place.exists() else next(each for each in places if not each.exists())


def _replaced() -> list[str]:
    return list(dict.fromkeys(name.split("/")[0] for name in archives.NAMES))


def _claimed(folder: Path, advice: str) -> data_folder.FolderLock:
    try:
        return data_folder.lock_folder(folder)
    except data_folder.FolderInUse as error:
        raise errors.BadConfiguration(
            f"the data folder {folder} is in use by process {error.holder}; {advice}"
        ) from None


def _check_place(out: Path) -> None:
    """Refuse to replace what is no backup, before any work is done."""
    if out.exists():
        try:
            archives.check(out)
        except errors.BadConfiguration:
            raise errors.BadConfiguration(
                f"{out} is there and is no whole backup of Bramley; choose another file with --out"
            ) from None
    private_files.check_place(out)


async def _copy(answer: Stream, file: IO[bytes], progress: Progress) -> None:
    total, done = int(answer.headers.get("content-length", "0")), 0
    chunks = answer.chunks
    while True:
        try:
            async with asyncio.timeout(_SILENCE.total_seconds()):
                chunk = await anext(chunks, b"")
        except TimeoutError as error:
            raise errors.TimedOut(f"the backup stopped coming after {done:,} bytes") from error
        if not chunk:
            return
        await asyncio.to_thread(file.write, chunk)
        done += len(chunk)
        progress(done, total)


async def _refusal(answer: Stream) -> Exception:
    body = b"".join([chunk async for chunk in answer.chunks])
    if answer.status == 404:
        return errors.BadConfiguration(
            "this server makes no backups: it is no embedded API of Bramley's with a data folder"
        )
    return status.error("making a backup", status.parse(body), code=answer.status)
