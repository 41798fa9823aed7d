"""Writes to the store: all handlers decide against the current object and store the decision here.

A decision is a pure function of the current record. A dry run decides against the committed record and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import objects
from bramley.apiserver.rest.server import Server, check_not_damaged, served, served_bytes
from bramley.apiserver.store.records import Draft, Key, Record, Removal


class Keep(msgspec.Struct, frozen=True):
    """Leave the object unchanged."""

    current: Record


class Put(msgspec.Struct, frozen=True):
    """Store this object."""

    new: Json
    created: bool = False


class Remove(msgspec.Struct, frozen=True):
    """Remove the object; this is its last state."""

    last: Json


Decision = Keep | Put | Remove
Decide = Callable[[Record | None], Decision]


class Written(msgspec.Struct, frozen=True):
    """The result of a write: the decision, and the object's JSON for the response."""

    decision: Decision
    body: bytes


async def write(
    server: Server, resource: ServedResource, key: Key, decide: Decide, *, dry_run: bool = False
) -> Written:
    """Decide, store, and return once the result is durable."""
    check_not_damaged(server, resource, key)
    if dry_run:
        current = server.store.get(key)
        decision = decide(current)
        _check_agent_guard(server, decision, current, resource)
        return _dry_run_result(decision, resource)
    decisions: list[Decision] = []

    def build(current: Record | None, rv: int) -> Draft | Removal | None:
        decision = decide(current)
        # Inside the write: the guard sees exactly the states that are replaced and stored.
        _check_agent_guard(server, decision, current, resource)
        decisions.append(decision)
        return _draft(decision, rv, server, resource)

    record = await server.store.write(key, build)
    decision = decisions[-1]
    # The client that removed the last finalizer gets the object without the version of its removal.
    if isinstance(decision, Remove):
        return Written(decision, msgspec.json.encode(decision.last))
    return Written(decision, served_bytes(record, resource))


def _check_agent_guard(
    server: Server, decision: Decision, current: Record | None, resource: ServedResource
) -> None:
    if server.agent_guard is None:
        return
    old = None if current is None else served(current, resource)
    if isinstance(decision, Keep):
        # The response contains the object, so an update without changes must not be a way to read it.
        server.agent_guard(served(decision.current, resource), old)
        return
    server.agent_guard(decision.new if isinstance(decision, Put) else decision.last, old)


def _draft(
    decision: Decision, rv: int, server: Server, resource: ServedResource
) -> Draft | Removal | None:
    if isinstance(decision, Put):
        limit_bytes = server.settings.object_limit_bytes
        return objects.draft(decision.new, rv, resource, limit_bytes=limit_bytes)
    if isinstance(decision, Remove):
        return objects.removal(decision.last, rv, resource)
    return None


def _dry_run_result(decision: Decision, resource: ServedResource) -> Written:
    if isinstance(decision, Put):
        return Written(decision, msgspec.json.encode(decision.new))
    if isinstance(decision, Remove):
        return Written(decision, msgspec.json.encode(decision.last))
    return Written(decision, served_bytes(decision.current, resource))
