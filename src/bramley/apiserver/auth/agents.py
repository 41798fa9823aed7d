"""The agent's rule on the embedded API: its verdicts, and its look at every write.

For an agent the rule alone decides, whatever roles it has besides; only the binding that makes it an agent must be there.
The rule is loaded when the first ServiceAccount asks for something: a server starts without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bramley.apiserver.apimachinery import users
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authorizer import Verdict, refusal
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.store.store import Store

if TYPE_CHECKING:
    from bramley.access.rule import Asked
    from bramley.apiserver.auth.agent_world import StoredWorld

Oversee = Callable[[Json | None, Json | None], None]
"""Looks at an object's new and old state before it is stored, and raises a refusal."""


class Agents:
    """The rule, asked by the authorizer and by the write path."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: StoredWorld | None = None

    def opinion(self, asked: Attributes) -> Verdict | None:
        """Return the verdict about an agent's request for a resource, None for everything else."""
        wish = _wish(asked)
        if wish is None or not asked.resource:
            return None
        from bramley.access import rule

        ruling = rule.judge(wish, self._world())
        return Verdict(allowed=ruling.allowed, reason=ruling.reason, denied=not ruling.allowed)

    def overseer(self, asked: Attributes) -> Oversee | None:
        """Return what must see each object that an agent writes, None for other callers."""
        wish = _wish(asked)
        if wish is None:
            return None
        from bramley.access import rule

        world = self._world()

        def oversee(new: Json | None, old: Json | None) -> None:
            why = rule.admit(wish, None if wish.verb == "delete" else new, old, world)
            if why is not None:
                raise refusal(asked, f"the agent's rule: {why}")

        return oversee

    def _world(self) -> StoredWorld:
        if self._known is None:
            from bramley.apiserver.auth.agent_world import StoredWorld

            self._known = StoredWorld(self._store)
        return self._known


def _wish(asked: Attributes) -> Asked | None:
    """Return what is asked in the rule's words, None if no agent asks it."""
    user = asked.user
    if not user.name.startswith(users.ACCOUNT_PREFIX):
        return None
    from bramley.access import rule

    node = rule.node_of(user.name, user.extra)
    if node is None:
        return None
    return rule.Asked(
        node=node,
        verb=asked.verb,
        group=asked.group,
        resource=asked.resource,
        subresource=asked.subresource,
        namespace=asked.namespace,
        name=asked.name,
        selected_node=asked.selected_node,
    )
