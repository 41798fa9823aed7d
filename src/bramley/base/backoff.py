"""Exponential backoff with a maximum, and with jitter so that retries of many clients do not coincide."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from `initial` to `maximum`, each shortened by up to `jitter` of itself."""

    initial: timedelta = timedelta(milliseconds=200)
    maximum: timedelta = timedelta(minutes=5)
    factor: float = 2.0
    jitter: float = 0.3

    def delay(self, failures: int, rng: random.Random) -> timedelta:
        """Return the wait after this many failures in a row; the first failure is number 1."""
        # The exponent is capped because 2.0 ** 1024 does not fit a float and a key may fail for weeks.
        exponent = min(max(failures - 1, 0), 64)
        full = min(
            self.initial.total_seconds() * self.factor**exponent, self.maximum.total_seconds()
        )
        return timedelta(seconds=full * (1 - self.jitter * rng.random()))
