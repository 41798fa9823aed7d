"""One uplink that all pulls of a fleet share: each transfer gets an equal share, at most its own limit.

Rates change only when a transfer starts, ends or gets another limit, so one timer per change is enough for any number of bytes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

# Timers may fire slightly early; what would arrive within this many seconds counts as arrived.
_TIMER_SLACK_SECONDS = 1e-4
# The least that counts as arrived, for transfers whose rate is zero or unlimited.
_SLACK_BYTES = 1.0


@dataclass(slots=True, eq=False)
class Transfer:
    """One download; `rate` is its present share in bytes per second."""

    size: float
    limit: float
    on_done: Callable[[], None]
    remaining: float
    rate: float = 0.0
    is_stalled: bool = False

    @property
    def allowed(self) -> float:
        """Return the largest rate that this transfer may have."""
        return 0.0 if self.is_stalled else self.limit


def fair_rates(limits: Iterable[float], bytes_per_second: float) -> list[float]:
    """Divide the bandwidth into equal shares; what a transfer with a lower limit leaves is shared by the others."""
    most = list(limits)
    rates = [0.0] * len(most)
    left, waiting = bytes_per_second, len(most)
    for index in sorted(range(len(most)), key=most.__getitem__):
        rates[index] = min(most[index], left / waiting)
        left -= rates[index]
        waiting -= 1
    return rates


@dataclass(slots=True, eq=False)
class Uplink:
    """The shared uplink; `bytes_per_second` may be infinite."""

    bytes_per_second: float = math.inf
    # A dict for its order: equal runs must not depend on the addresses of objects.
    _transfers: dict[Transfer, None] = field(default_factory=dict)
    _advanced_at: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def start(
        self, size: float, on_done: Callable[[], None], *, limit: float = math.inf
    ) -> Transfer:
        """Start a transfer; `on_done` is called when all of it has arrived, never before this returns."""
        transfer = Transfer(float(size), limit, on_done, float(size))
        self._advance()
        self._transfers[transfer] = None
        self._share()
        return transfer

    def cancel(self, transfer: Transfer) -> None:
        """End a transfer early."""
        self._advance()
        self._transfers.pop(transfer, None)
        self._share()

    def limit(self, transfer: Transfer, limit: float) -> None:
        """Change the limit of a transfer."""
        if limit == transfer.limit:
            return
        self._advance()
        transfer.limit = limit
        self._share()

    def stall(self, transfer: Transfer, *, is_stalled: bool = True) -> None:
        """Stop a transfer without ending it, or let it continue."""
        self._advance()
        transfer.is_stalled = is_stalled
        self._share()

    def percent(self, transfer: Transfer) -> int:
        """Return how much of a transfer has arrived, rounded down."""
        self._advance()
        if transfer.size <= 0:
            return 100
        return int(100 * (1 - max(transfer.remaining, 0.0) / transfer.size))

    def _advance(self) -> None:
        """Account for what has arrived since the last call."""
        now = asyncio.get_running_loop().time()
        passed, self._advanced_at = now - self._advanced_at, now
        for transfer in self._transfers:
            if math.isinf(transfer.rate):
                transfer.remaining = 0.0
            else:
                transfer.remaining -= transfer.rate * passed

    def _share(self) -> None:
        """Set the rates of all transfers and the timer of the one that ends first."""
        transfers = list(self._transfers)
        rates = fair_rates((each.allowed for each in transfers), self.bytes_per_second)
        for transfer, rate in zip(transfers, rates, strict=True):
            transfer.rate = rate
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moving = [each for each in transfers if each.rate > 0]
        if moving:
            pause = min(max(each.remaining, 0.0) / each.rate for each in moving)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(loop.time() + pause, self._finish)

    def _finish(self) -> None:
        self._advance()
        done = [each for each in self._transfers if _has_arrived(each)]
        for transfer in done:
            del self._transfers[transfer]
        # Before the callbacks, which may start transfers.
        self._share()
        for transfer in done:
            transfer.on_done()


def _has_arrived(transfer: Transfer) -> bool:
    slack = 0.0 if math.isinf(transfer.rate) else transfer.rate * _TIMER_SLACK_SECONDS
    return transfer.rate > 0 and transfer.remaining <= max(_SLACK_BYTES, slack)
