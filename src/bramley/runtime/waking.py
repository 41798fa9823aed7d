"""From changes to keys: connects informers to a controller's queue.

A change wakes the keys of the old and of the new state, so that whoever lost a child hears of it too. If the function that
maps an object to keys has a bug, no wake-up is lost: every key is woken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bramley.api.meta import K, Object
from bramley.base import log
from bramley.runtime.caught import Caught
from bramley.runtime.controller import Wake
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.mirror import Handler
from bramley.runtime.queue import Priority
from bramley.runtime.worker import Workers

logger = log.get(__name__)


# Until Python 3.12 looking up the member of an enum takes as long as queueing a key.
_DELETION, _CHANGE, _RESYNC = Priority


def by_primary(workers: Workers[K], informer: Informer[K]) -> None:
    """Wake each object when it changes itself."""
    add, synced = workers.queue.add, informer.synced.is_set

    def changed(key: Key, _old: K | None, new: K | None) -> None:
        add(key, _priority(new, is_synced=synced()))

    informer.on_change(changed)


def by_other(
    workers: Workers[K], wake: Wake, informer: Informer[Any], metrics: RuntimeMetrics
) -> None:
    """Wake the keys that a change of another kind concerns."""
    informer.on_change(_mapped(workers, wake, informer.synced.is_set, metrics))


def _mapped(
    workers: Workers[K], wake: Wake, synced: Callable[[], bool], metrics: RuntimeMetrics
) -> Handler[Any]:
    def changed(key: Key, old: Object | None, new: Object | None) -> None:
        keys: dict[Key, None] = {}
        with Caught() as caught:
            for state in (old, new):
                keys |= dict.fromkeys(wake.to(state) if state is not None else ())
        if caught.error is not None:
            metrics.mapping_bugs.of(workers.name).inc()
            kind = wake.kind.resource.kind
            logger.error("Mapping has a bug", exc=caught.error, kind=kind, object=str(key))
            workers.wake_all()
        priority = _priority(new, is_synced=synced())
        for woken in keys:
            workers.queue.add(woken, priority)

    return changed


def _priority(new: Object | None, *, is_synced: bool) -> Priority:
    if new is None or new.metadata.deletion_timestamp is not None:
        return _DELETION
    return _CHANGE if is_synced else _RESYNC
