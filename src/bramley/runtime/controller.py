"""How a controller is said: a reconciler, the kind it is for, and what else wakes it.

`Controller(PoolReconciler(…)).watching(RunnerPool).owning(Pod).woken_by(Secret, to=pools_using)` is a value; nothing runs
until a `manager.Manager` has it. What happens to one key stands in `worker`.
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
from bramley.runtime.bell import Bell
from bramley.runtime.keys import Key
from bramley.runtime.outcome import Outcome
from bramley.runtime.source import EVERYTHING, Selection

K_contra = TypeVar("K_contra", bound=Object, contravariant=True)
W = TypeVar("W", bound=Object)


class Reconciler(Protocol[K_contra]):
    """Brings the world to what one object asks.

    Guarantees: never called twice at once for the same object; called again after each change that wakes it, with a state
    at least as new as its own writes; bugs, errors and deadlines stay with the object at hand.
    Assumptions: it can be called at any time and any number of times; it looks at the world and not at what has changed.
    """

    async def reconcile(self, thing: K_contra, /) -> Outcome:
        """Make the world as the object asks, or say when to look again, or raise."""
        ...


@runtime_checkable
class Releasing(Protocol):
    """A reconciler that holds something outside; the runtime keeps its finalizer on the object until it has let go."""

    @property
    def finalizer(self) -> str:
        """Return the finalizer's name."""
        ...

    async def release(self, thing: Any, /) -> Outcome:
        """Undo what reconcile did, also if it never ran; the finalizer goes once this is Settled."""
        ...


@runtime_checkable
class Forgetting(Protocol):
    """A reconciler that keeps something in memory for each object."""

    def forget(self, key: Key) -> None:
        """Drop what is kept for an object that is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Wake:
    """A second kind whose changes wake keys."""

    kind: type[Object]
    selection: Selection
    to: Callable[[Any], Iterable[Key]]


_RETRIES = Backoff(timedelta(milliseconds=200), timedelta(minutes=5))


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """How a controller works."""

    workers: int = 16
    deadline: timedelta = timedelta(minutes=2)
    backoff: Backoff = _RETRIES
    # A safety net, not a clock: every object is looked at again about this often.
    resync: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Controller(Generic[K]):
    """A reconciler and what wakes it."""

    reconciler: Reconciler[K]
    settings: ControllerSettings = ControllerSettings()
    name: str = ""
    primary: type[K] | None = None
    selection: Selection = EVERYTHING
    wakes: tuple[Wake, ...] = ()
    bells: tuple[Bell, ...] = ()

    def watching(
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

    def owning(
        self, kind: type[Object], *, namespace: str | None = None, labels: Selector = None
    ) -> Controller[K]:
        """Wake the owner when an object of this kind changes whose controller it is."""
        return self.woken_by(kind, to=owner_keys(self.kind), namespace=namespace, labels=labels)

    def woken_by(
        self,
        kind: type[W],
        *,
        to: Callable[[W], Iterable[Key]],
        namespace: str | None = None,
        labels: Selector = None,
        fields: Selector = None,
    ) -> Controller[K]:
        """Wake the keys that `to` gives when an object of this kind changes, for its old and its new state."""
        selection = Selection.of(namespace, labels=labels, fields=fields)
        return dataclasses.replace(self, wakes=(*self.wakes, Wake(kind, selection, to)))

    def woken_from(self, bell: Bell) -> Controller[K]:
        """Wake the keys that are rung for, because of something that no object of the API tells."""
        return dataclasses.replace(self, bells=(*self.bells, bell))

    @property
    def kind(self) -> type[K]:
        """Return the kind that is reconciled."""
        if self.primary is None:
            raise errors.BadConfiguration("a controller must say what it is watching first")
        return self.primary


def owner_keys(owner: type[Object]) -> Callable[[Object], list[Key]]:
    """Return the function from an object to the key of its controlling owner, if that is of this kind."""
    resource = owner.resource

    def keys(thing: Object) -> list[Key]:
        namespace = (thing.metadata.namespace or "") if resource.namespaced else ""
        return [
            Key(namespace, reference.name)
            for reference in thing.metadata.owner_references
            if reference.controller
            and reference.kind == resource.kind
            # Another version of the same group is the same kind.
            and reference.api_version.rpartition("/")[0] == resource.group
        ]

    return keys
