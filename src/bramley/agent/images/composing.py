"""The images' parts put together, for whoever builds an agent."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bramley.agent.host import Host
from bramley.agent.images.image_requests import Failures
from bramley.agent.images.image_store import Stock
from bramley.agent.images.images import Images, Keys, Surroundings
from bramley.agent.images.puller import Puller, PullSettings, Reclaim
from bramley.agent.ledger import Ledger
from bramley.agent.metrics import AgentMetrics
from bramley.agent.tart.driver import Tart
from bramley.base.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What images need of the agent; without `reclaim` there is no way to make room."""

    tart: Tart
    ledger: Ledger
    stock: Stock
    keys: Keys
    host: Host
    clock: Clock
    rng: random.Random
    metrics: AgentMetrics
    reclaim: Reclaim | None = None


def build(means: Means, settings: PullSettings | None = None) -> Images:
    """Return images that fetch nothing until they run."""
    puller = Puller(
        means.tart,
        clock=means.clock,
        rng=means.rng,
        metrics=means.metrics,
        reclaim=means.reclaim,
        settings=settings,
    )
    return Images(
        Surroundings(
            tart=means.tart,
            ledger=means.ledger,
            stock=means.stock,
            puller=puller,
            keys=means.keys,
            host=means.host,
            clock=means.clock,
            failures=Failures(means.clock, means.rng),
            reclaim=means.reclaim,
        )
    )
