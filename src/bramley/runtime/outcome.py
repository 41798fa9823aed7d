"""What a reconcile says when nothing failed: it is settled, or it wants to be asked again, and why.

Waiting is a value and failing is an exception; `verdict` turns both into what happens next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Settled:
    """The world is as the object asks; the next change of it will wake the key."""


@dataclass(frozen=True, slots=True)
class CheckAgain:
    """Not yet: look again `after` this time, because of `why`."""

    after: timedelta
    why: str


Outcome = Settled | CheckAgain
