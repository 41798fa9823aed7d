"""Pure functions over lists of conditions.

The transition time changes only when the status changes, however often a condition is set.
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
    return next((each for each in conditions if each.type == type), None)


def is_true(conditions: Sequence[Condition], type: str) -> bool:
    """Return whether the condition of this type exists and is True."""
    condition = find(conditions, type)
    return condition is not None and condition.status == "True"


def put(conditions: Sequence[C], condition: C, *, now: datetime) -> list[C]:
    """Return the conditions with this one in place of the one of its type, or at the end."""
    old = find(conditions, condition.type)
    since = old.last_transition_time if old and old.status == condition.status else None
    new = msgspec.structs.replace(
        condition, last_transition_time=since or now.replace(microsecond=0)
    )
    if old is None:
        return [*conditions, new]
    return [new if each.type == condition.type else each for each in conditions]


def without(conditions: Sequence[C], type: str) -> list[C]:
    """Return the conditions without the one of this type."""
    return [each for each in conditions if each.type != type]
