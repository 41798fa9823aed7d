"""Conditions as pure functions over lists: set one, find one, ask one.

The transition time moves only when the status does, so that "since when" stays true however often somebody looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from bramley.api.meta import Condition

C = TypeVar("C", bound=Condition)


def find(conditions: Sequence[C], type: str) -> C | None:
    """Return the condition of this type, or None."""
    return next((one for one in conditions if one.type == type), None)


def is_true(conditions: Sequence[Condition], type: str) -> bool:
    """Tell whether the condition of this type is there and true."""
    found = find(conditions, type)
    return found is not None and found.status == "True"


def put(conditions: Sequence[C], wanted: C, *, now: datetime) -> list[C]:
    """Return the conditions with this one in the place of its type, or at the end."""
    old = find(conditions, wanted.type)
    since = old.last_transition_time if old and old.status == wanted.status else None
    new = msgspec.structs.replace(wanted, last_transition_time=since or now.replace(microsecond=0))
    if old is None:
        return [*conditions, new]
    return [new if one.type == wanted.type else one for one in conditions]


def without(conditions: Sequence[C], type: str) -> list[C]:
    """Return the conditions but the one of this type."""
    return [one for one in conditions if one.type != type]
