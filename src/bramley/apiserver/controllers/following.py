"""Handlers of changes that one strange object cannot end: what it raises is told, and the next change is handled."""

from __future__ import annotations

from bramley.api.meta import K
from bramley.base import log
from bramley.base.errors import Captured
from bramley.runtime.cache import Handler
from bramley.runtime.keys import Key

logger = log.get(__name__)


def sparing(handler: Handler[K]) -> Handler[K]:
    """Return a handler that lets a change pass which the given one stumbles over."""

    def changed(key: Key, old: K | None, new: K | None) -> None:
        with Captured() as caught:
            handler(key, old, new)
        if caught.error is not None:
            kind = type(new or old).__name__
            logger.error("Cannot follow an object", exc=caught.error, kind=kind, object=str(key))

    return changed
