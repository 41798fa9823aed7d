"""Operations on webhook deliveries: stored before they are acknowledged, processed exactly once, bounded in number."""

from __future__ import annotations

import hashlib
from datetime import datetime

from bramley.base.errors import Unavailable
from bramley.dispatch.jobs import Report, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store import job_updates, sql
from bramley.dispatch.store.operations import Operation, first, rows
from bramley.dispatch.store.records import Delivery, milliseconds, moment

MAX_PENDING = 100_000


def receive(
    guid: str, event: str, body: bytes, now: datetime, *, max_pending: int = MAX_PENDING
) -> Operation[bool]:
    """Store a delivery; return False if it, or one with the same content, is known."""
    waiting = yield from first(sql.COUNT_PENDING, max=max_pending)
    if waiting and waiting["pending"] >= max_pending:
        raise Unavailable(f"{max_pending} deliveries wait to be processed; deliver again later")
    added = yield from first(
        sql.ADD_DELIVERY,
        guid=guid,
        content_hash=content_hash(event, body),
        event=event,
        body=body,
        now=milliseconds(now),
    )
    return added is not None


def content_hash(event: str, body: bytes) -> str:
    """Return the hash by which repeated content is recognised."""
    return hashlib.sha256(event.encode() + b"\n" + body).hexdigest()


def pending(after_id: int, limit: int) -> Operation[tuple[Delivery, ...]]:
    """Return the oldest deliveries that are not processed, by id."""
    found = yield from rows(sql.PENDING_DELIVERIES, after_id=after_id, max=limit)
    return tuple(
        Delivery(
            row["id"], row["guid"], row["event"], bytes(row["body"]), moment(row["received_at"])
        )
        for row in found
    )


def process(
    delivery_id: int, report: Report, route: Route, now: datetime
) -> Operation[State | None]:
    """Apply a delivery's report; return the state of the job, or None if the delivery is processed already."""
    # Marked in the same transaction: a crash leaves both undone, and a second replica finds the row locked or marked.
    locked = yield from first(sql.LOCK_DELIVERY, id=delivery_id)
    if locked is None:
        return None
    state = yield from job_updates.apply_report(report, route, now)
    yield from rows(sql.FINISH_DELIVERY, id=delivery_id, outcome=state.value, now=milliseconds(now))
    return state


def skip(delivery_id: int, outcome: str, now: datetime) -> Operation[bool]:
    """Mark a delivery that changes no job; return False if it is processed already."""
    locked = yield from first(sql.LOCK_DELIVERY, id=delivery_id)
    if locked is None:
        return False
    yield from rows(sql.FINISH_DELIVERY, id=delivery_id, outcome=outcome, now=milliseconds(now))
    return True
