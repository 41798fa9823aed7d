"""Informer handlers that survive an object they cannot process."""

from __future__ import annotations

from bramley.api.meta import K
from bramley.base import log
from bramley.base.errors import Captured
from bramley.runtime.cache import Handler
from bramley.runtime.keys import Key

logger = log.get(__name__)


def log_errors(handler: Handler[K]) -> Handler[K]:
    """Return a handler that logs what the given one raises, so that the informer goes on with the next change."""

    def changed(key: Key, old: K | None, new: K | None) -> None:
        with Captured() as caught:
            handler(key, old, new)
        if caught.error is not None:
            kind = type(new or old).__name__
            logger.error("Informer handler failed", exc=caught.error, kind=kind, object=str(key))

    return changed
