"""`Server`: the dependencies of all handlers, such as the store, the catalog of served resources and the clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from msgspec.structs import replace

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import Details
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authenticator import Authenticator
from bramley.apiserver.auth.authorizer import Authorizer
from bramley.apiserver.auth.node_authorizer import AgentGuard, NodeAuthorizer
from bramley.apiserver.registry import crds
from bramley.apiserver.registry.resources import Catalog, Json, ServedResource
from bramley.apiserver.store.records import Key, Record
from bramley.apiserver.store.store import Store
from bramley.base.clock import Clock

if TYPE_CHECKING:
    from bramley.apiserver.nodes.usage import Kubelets

Admit = Callable[[Json, Json | None], None]

NAMESPACES = "namespaces"
CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class Server(msgspec.Struct, frozen=True):
    """The embedded API, without HTTP.

    `terminating_namespaces` are those whose deletion was decided: it includes pending writes of the store, and nothing may be
    created in these namespaces. `guard` checks the objects that one request writes, new and old, in addition to the kind's strategy.
    `agent_guard` checks each state that an agent's request would store. `nodes` connects to the agents on nodes, if it is set.
    """

    store: Store
    catalog: Catalog
    clock: Clock
    rng: random.Random
    settings: Settings
    authorizer: Authorizer
    authenticator: Authenticator
    node_authorizer: NodeAuthorizer
    nodes: Kubelets | None = None
    terminating_namespaces: set[str] = set()
    guard: Admit | None = None
    agent_guard: AgentGuard | None = None

    def uid(self) -> UUID:
        """Return a new unique id."""
        return UUID(int=self.rng.getrandbits(128), version=4)

    def with_guard(self, guard: Admit) -> Server:
        """Return the same server for one request, whose writes are checked by a guard."""
        return replace(self, guard=guard)

    def with_agent_guard(self, attributes: Attributes) -> Server:
        """Return the same server for one request, whose writes are checked by the rules for agents if an agent sent it."""
        agent_guard = self.node_authorizer.guard_for(attributes)
        return self if agent_guard is None else replace(self, agent_guard=agent_guard)

    def admission(self, resource: ServedResource) -> Admit | None:
        """Return the checks of a written object that are not in its kind's strategy: against other CRDs, and the caller's guard."""
        admit, guard = self._kind_admission(resource), self.guard
        if admit is None or guard is None:
            return admit or guard

        def both(new: Json, old: Json | None) -> None:
            admit(new, old)
            guard(new, old)

        return both

    def _kind_admission(self, resource: ServedResource) -> Admit | None:
        if resource.strategy.admit is None and resource.stored_name == CRDS:
            return self._admit_crd
        return resource.strategy.admit

    def _admit_crd(self, new: Json, old: Json | None) -> None:
        name = new["metadata"]["name"]
        others = [each for each in self._definitions() if each["metadata"]["name"] != name]
        crds.admit(new, old, others=others, clock=self.clock)
        spec = new["spec"]
        if self.catalog.has_builtin(spec["group"], spec["names"]["plural"]):
            # Its objects would be stored among the built-in ones, without their validation.
            wrong = causes.invalid("metadata.name", name, "this server has such a kind built in")
            raise status.invalid(Details(crds.GROUP, crds.KIND, name), [wrong])

    def _definitions(self) -> list[Json]:
        """Return the CRDs whose names can be decoded."""
        crds_in_store = []
        for record in self.store.list(CRDS):
            with self.store.damage.skip_unreadable(record):
                msgspec.json.decode(record.body, type=crds.Named)
                crds_in_store.append(decoded(record))
        return crds_in_store


def decoded(record: Record) -> Json:
    """Return a record's object, a new one for each caller."""
    value: Json = msgspec.json.decode(record.body)
    return value


def check_not_damaged(server: Server, resource: ServedResource, key: Key) -> None:
    """Raise a 500 for a quarantined object, which exists but can neither be read nor changed."""
    if key in server.store.damage.quarantined:
        name = resource.details(key.name).qualified
        message = f"{name} {causes.quoted(key.name)} is damaged in the store; restore a backup, or delete it"
        raise status.internal(message)


def served(record: Record, resource: ServedResource) -> Json:
    """Return a record's object as the resource's version shows it."""
    stored = decoded(record)
    if resource.conversion is not None:
        return resource.conversion.to_served(stored)
    # Kind and apiVersion come first, as lists need it, whatever their stored order.
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    return {**head, **stored, **head}


def existing(record: Record | None, resource: ServedResource, name: str) -> Record:
    """Return the record; raise a 404 if there is none."""
    if record is None:
        raise status.not_found(resource.details(name))
    return record


def served_bytes(record: Record, resource: ServedResource) -> bytes:
    """Return a record's JSON as the resource's version shows it; usually the stored bytes."""
    if record.body.startswith(resource.prefix):
        return record.body
    return msgspec.json.encode(served(record, resource))


def namespace_key(name: str) -> Key:
    """Return the key of a namespace."""
    return Key(NAMESPACES, "", name)
