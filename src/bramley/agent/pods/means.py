"""What the Pods' part of the agent works with: the seams to the API, the host, tart, images and guests, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bramley.agent.guest.folders import UserData
from bramley.agent.guest.guests import Guests
from bramley.agent.host import Host
from bramley.agent.images.image_requests import Answer, ImageRequest
from bramley.agent.ledger.ledger import Ledger
from bramley.agent.metrics import AgentMetrics
from bramley.agent.pods.departures import Departures
from bramley.agent.pods.exits import Exits
from bramley.agent.pods.hearing import Hearing
from bramley.agent.pods.memory import Memory
from bramley.agent.runs import Runs
from bramley.agent.slots import Slots
from bramley.agent.steady import SteadyClock
from bramley.agent.tart.driver import Tart
from bramley.api.pod import Pod
from bramley.runtime.bell import Bell
from bramley.runtime.cache import Cache
from bramley.runtime.events import Recorder
from bramley.runtime.writes import FencedKube


class Images(Protocol):
    """Gives golden bases."""

    def want(self, request: ImageRequest, *, on_change: Callable[[], None]) -> Answer:
        """Return at once whether the image is here; `on_change` is called when the answer may have changed."""
        ...

    async def clone(self, golden: str, vm: str) -> None:
        """Make a VM out of a golden base."""
        ...


class Preflight(Protocol):
    """Looks after the GUI session that VMs need."""

    async def look(self) -> bool:
        """Tell whether a VM could start now."""
        ...

    async def ensure(self, *, seen_within: timedelta = timedelta()) -> None:
        """Return when a VM can start; NoSession if it cannot. What was seen within this time is not looked at again."""
        ...


class Scraping(Protocol):
    """Makes the metrics of guests reachable."""

    async def shown(self, pod: Pod, vm: str, address: str) -> str:
        """Return the address to tell of a Pod: the Node's if its metrics are passed on, else the guest's own."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """All that is needed to make Pods VMs; `host_address` is what statuses tell of the host, `session` is None where no GUI session is looked after."""

    host_address: str
    kube: FencedKube
    pods: Cache[Pod]
    recorder: Recorder
    bell: Bell
    ledger: Ledger
    tart: Tart
    runs: Runs
    host: Host
    images: Images
    data: UserData
    guests: Guests
    session: Preflight | None
    slots: Slots
    metrics: AgentMetrics
    memory: Memory
    exits: Exits
    departures: Departures
    hearing: Hearing
    clock: SteadyClock
    scraping: Scraping | None = None
