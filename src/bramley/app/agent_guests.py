"""The parts of an agent that know guests: their folders and tokens, and the endpoints that show their logs to others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from bramley.agent.guest.environment import Place
from bramley.agent.guest.folders import UserData
from bramley.agent.guest.guests import Guests
from bramley.agent.guest.tokens import Tokens
from bramley.runtime.keys import Key

if TYPE_CHECKING:
    from bramley.agent.ledger import Ledger
    from bramley.agent.metrics import AgentMetrics
    from bramley.agent.serving.endpoints import Endpoints
    from bramley.agent.settings import Serving, Settings
    from bramley.api.core import Pod
    from bramley.app.agent import Surroundings
    from bramley.runtime.cache import Cache

Jobs = Iterator[Coroutine[Any, Any, object]]


class GuestParts:
    """What host and guests share."""

    def __init__(self, settings: Settings, around: Surroundings, metrics: AgentMetrics) -> None:
        self.folders = UserData(settings.folders.user_data)
        self.tokens = Tokens(
            around.kube, self.folders, clock=around.clock, rng=around.rng, counted=metrics
        )
        self.guests = Guests(
            around.kube,
            self.folders,
            self.tokens,
            place=_place(settings),
            logs=settings.folders.vm_logs,
        )


def endpoints(
    settings: Settings, around: Surroundings, serving: Serving, *, ledger: Ledger, pods: Cache[Pod]
) -> Endpoints:
    """Return the endpoints for logs and stats; loaded only where they are served."""
    from bramley.agent.serving.endpoints import Endpoints

    return Endpoints(
        settings,
        serving,
        kube=around.kube,
        programs=around.programs,
        host=around.host,
        ledger=ledger,
        pods=lambda namespace, name: pods.find(Key(namespace, name)),
        clock=around.clock,
    )


def serving_jobs(served: Endpoints, on_serving: Callable[[int], None]) -> Jobs:
    """Yield what runs where logs and stats are served; `on_serving` hears the port."""
    yield from served.jobs()
    yield _tell(served, on_serving)


def _place(settings: Settings) -> Place:
    node = settings.node
    return Place(
        node=node.name,
        host=node.address or node.name,
        allocatable={"cpu": str(node.cpu), "memory": f"{node.memory_mb}Mi"},
    )


async def _tell(served: Endpoints, on_serving: Callable[[int], None]) -> None:
    await served.server.ready.wait()
    on_serving(served.server.port)
