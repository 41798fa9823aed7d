"""HTTP requests of a guest under virtual time; its agent serves requests meanwhile."""

from collections.abc import Generator
from typing import Any

from bramley.sim.tart import effects
from bramley.sim.tart.effects import Effect, HttpAnswer
from bramley.sim.tart.guest import Guest, ShutDown


def exchange(
    guest: Guest, request: effects.SendRequest, seconds: float
) -> Generator[Effect, Any, HttpAnswer | None]:
    """Send a request and return its answer; None without one within `seconds`."""
    deadline = guest.context.now() + seconds
    yield request
    try:
        answer: HttpAnswer | None = yield effects.TakeAnswer()
        while answer is None and guest.context.now() < deadline:
            yield from guest.serve_once(deadline)
            answer = yield effects.TakeAnswer()
    except ShutDown:
        yield effects.DropRequest()
        raise
    if answer is None:
        yield effects.DropRequest()
    return answer
