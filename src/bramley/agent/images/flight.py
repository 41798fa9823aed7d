"""One image on its way to this host, and everybody who waits for it: there is never a second flight for the same name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from bramley.agent.images.asking import ImageRequest, OnChange, PullPolicy
from bramley.agent.images.pulling import Order
from bramley.agent.images.watching import Watched
from bramley.agent.tart.references import Reference


@dataclass(slots=True, eq=False)
class Flight:
    """The first wish decides about credentials; every other one joins."""

    request: ImageRequest
    reference: Reference
    order: Order
    since: datetime
    listeners: dict[str, OnChange] = field(default_factory=dict)
    # Whether the registry was asked what the name means now.
    is_fresh: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def image(self) -> str:
        """Return the name that was asked for."""
        return self.request.image

    @property
    def percent(self) -> int | None:
        """Return how far the pull has come, as far as that is known."""
        return self.order.watched.progress.percent

    @property
    def must_ask(self) -> bool:
        """Tell whether the registry has to be asked although the tag may be in the cache."""
        return self.request.policy is PullPolicy.ALWAYS and not self.reference.digest

    def join(self, owner: str, on_change: OnChange, watched: Watched | None) -> None:
        """Wait for it too; the newest stage decides about its limit, and with the first Pod it is no longer held back."""
        self.listeners[owner] = on_change
        if watched is None:
            self.order.is_staged = False
            self.order.watched.limit = None
            self.order.watched.objection = lambda: None
        elif self.order.is_staged:
            self.order.watched.limit = watched.limit

    def tell(self) -> None:
        """Tell everybody that the answer may have changed."""
        for listener in list(self.listeners.values()):
            listener()
