"""Operations on the last lines of `runner.log`, which are kept because the Pod of a failed VM is deleted.

The VM wrote the text, so it is bounded, and characters that control a terminal are replaced.
"""

from __future__ import annotations

from datetime import datetime

from bramley.dispatch.store import sql
from bramley.dispatch.store.operations import Operation, first, rows
from bramley.dispatch.store.records import milliseconds
from bramley.dispatch.webhook_payload import is_control

MAX_LOG_BYTES = 64 * 1024


def save(handle: int, text: str, now: datetime) -> Operation[None]:
    """Keep the last lines of the log of a claim's Pod, instead of those saved before; nothing for an unknown claim."""
    yield from rows(sql.SAVE_LOG, handle=handle, content=last_lines(text), now=milliseconds(now))


def last_lines(text: str) -> str:
    """Return the end of a log within the limit, with control characters replaced except newlines and tabs."""
    # A character has at least one byte, so nothing before this is kept.
    end = text[-MAX_LOG_BYTES:].replace("\r\n", "\n")
    clean = "".join(
        "\ufffd" if is_control(character) and character not in "\n\t" else character
        for character in end
    )
    return clean.encode()[-MAX_LOG_BYTES:].decode(errors="ignore")


def find(job_id: int) -> Operation[str | None]:
    """Return the log of the newest Pod that had a job and whose log is kept."""
    row = yield from first(sql.LOG_OF_JOB, job_id=job_id)
    return str(row["content"]) if row else None
