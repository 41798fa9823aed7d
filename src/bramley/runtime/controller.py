"""The definition of a controller: a reconciler, the kind it is for, and what else enqueues its keys.

`Controller(PoolReconciler(…)).for_kind(RunnerPool).owns(Pod).watches(Secret, to=pools_using)` is a value; nothing runs until
it is added to a `manager.Manager`. `worker` processes the keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from bramley.api.meta import K, Object
from bramley.base import errors
from bramley.base.backoff import Backoff
from bramley.kube.selectors import Selector
from bramley.runtime.client import EVERYTHING, Selection
from bramley.runtime.keys import Key
from bramley.runtime.outcome import Outcome
from bramley.runtime.queue import Trigger

K_contra = TypeVar("K_contra", bound=Object, contravariant=True)
W = TypeVar("W", bound=Object)


class Reconciler(Protocol[K_contra]):
    """Converges the world to the desired state of one object.

    Guarantees: never called twice at once for the same object; called again after each change that enqueues it, with a state
    at least as new as its own writes; bugs, errors and deadlines affect only the object at hand.
    Assumptions: it can be called at any time and any number of times; it observes the world and does not depend on what has changed.
    """

    async def reconcile(self, obj: K_contra, /) -> Outcome:
        """Converge, return when to check again, or raise."""
        ...


@runtime_checkable
class StatefulReconciler(Protocol):
    """A reconciler that keeps state in memory for each object."""

    def forget(self, key: Key) -> None:
        """Drop the state of an object that is gone."""
        ...


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A second kind whose changes enqueue keys."""

    kind: type[Object]
    selection: Selection
    to: Callable[[Any], Iterable[Key]]


_RETRIES = Backoff(timedelta(milliseconds=200), timedelta(minutes=5))


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Concurrency, deadline and retries of a controller."""

    workers: int = 16
    deadline: timedelta = timedelta(minutes=2)
    backoff: Backoff = _RETRIES
    # A safety net, not a clock: every object is enqueued again about this often.
    resync: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Controller(Generic[K]):
    """A reconciler and what enqueues its keys."""

    reconciler: Reconciler[K]
    settings: ControllerSettings = ControllerSettings()
    name: str = ""
    primary: type[K] | None = None
    selection: Selection = EVERYTHING
    watched: tuple[WatchedKind, ...] = ()
    triggers: tuple[Trigger, ...] = ()

    def for_kind(
        self,
        kind: type[K],
        *,
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
    ) -> Controller[K]:
        """Reconcile the objects of this kind."""
        return dataclasses.replace(
            self,
            primary=kind,
            name=self.name or kind.resource.kind.lower(),
            selection=Selection.of(namespace, labels=labels, fields=fields),
        )

    def owns(
        self, kind: type[Object], *, namespace: str | None = None, labels: Selector = None
    ) -> Controller[K]:
        """Enqueue the controlling owner when an object of this kind changes."""
        return self.watches(kind, to=owner_keys(self.kind), namespace=namespace, labels=labels)

    def watches(
        self,
        kind: type[W],
        *,
        to: Callable[[W], Iterable[Key]],
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
    ) -> Controller[K]:
        """Enqueue the keys that `to` returns for the old and the new state when an object of this kind changes."""
        selection = Selection.of(namespace, labels=labels, fields=fields)
        return dataclasses.replace(self, watched=(*self.watched, WatchedKind(kind, selection, to)))

    def triggered_by(self, trigger: Trigger) -> Controller[K]:
        """Enqueue the keys of this trigger, for sources outside the API."""
        return dataclasses.replace(self, triggers=(*self.triggers, trigger))

    @property
    def kind(self) -> type[K]:
        """Return the kind that is reconciled."""
        if self.primary is None:
            raise errors.BadConfiguration("a controller has no kind; call for_kind() first")
        return self.primary


def owner_keys(owner: type[Object]) -> Callable[[Object], list[Key]]:
    """Return the function from an object to the key of its controlling owner, if that is of this kind."""
    resource = owner.resource

    def keys(obj: Object) -> list[Key]:
        namespace = (obj.metadata.namespace or "") if resource.namespaced else ""
        return [
            Key(namespace, reference.name)
            for reference in obj.metadata.owner_references
            if reference.controller
            and reference.kind == resource.kind
            # Another version of the same group is the same kind.
            and reference.api_version.rpartition("/")[0] == resource.group
        ]

    return keys
