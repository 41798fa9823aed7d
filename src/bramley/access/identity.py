"""Making and withdrawing an agent, on either API server.

Every step looks first, so a second call after a cut finishes what the first began, and a call for an agent that exists
brings its rights up to date and gives it a new token. Revoking ends the tokens first: they die with the ServiceAccount.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.access import belongings, ensuring, policy, roles
from bramley.access.pods import BoundPod
from bramley.api.core import Node, ServiceAccount
from bramley.api.meta import Object
from bramley.api.names import access, agent
from bramley.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from bramley.base import errors, log
from bramley.base.secret import Secret
from bramley.kube.client import Client

logger = log.get(__name__)

SHORTEST = timedelta(minutes=10)
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Identity:
    """A new token of an agent, until when it works, and whether it dies with the Node."""

    node: str
    token: Secret
    expires: datetime
    is_bound: bool


async def create(kube: Client, node: str, *, expires: timedelta) -> Identity:
    """Make a ServiceAccount the agent of a Node, with exactly an agent's rights, and mint its token.

    The token is bound to the Node if that exists. If the agent is still to register it, the token is bound to nothing but
    the ServiceAccount, and the agent's first renewal binds it.
    """
    _check(node, expires)
    await ensure_shared(kube)
    owner = await ensuring.present(kube, belongings.own_role(node))
    for binding in belongings.cluster_bindings(owner):
        await ensuring.present(kube, binding)
    await ensuring.present(kube, belongings.account(owner))
    await _ensure_roles(kube, owner)
    return await _mint(kube, node, expires)


async def ensure_shared(kube: Client) -> None:
    """Make what all agents share, the policy before any right that it bounds."""
    for part in policy.objects():
        await ensuring.present(kube, part)
    await ensuring.present(kube, belongings.namespace())
    await ensuring.present(kube, belongings.shared_role())


async def revoke(kube: Client, node: str) -> bool:
    """Withdraw an agent's identity, its tokens at once; tell whether there was anything to withdraw."""
    if problem := _name_problem(node):
        raise errors.BadConfiguration(problem)
    found = False
    async for thing in _belongings(kube, node):
        found = True
        # Gone already, or another object of the same name by now: either way this one is no more.
        with suppress(errors.NotFound, errors.Conflict):
            await kube.delete(type(thing), thing.name, namespace=thing.namespace, uid=thing.uid)
    logger.info("Agent revoked", node=node)
    return found


def _check(node: str, expires: timedelta) -> None:
    problem = _name_problem(node)
    if not problem and expires < SHORTEST:
        problem = "a token lives 10 minutes at least; give a longer --expires"
    if problem:
        raise errors.BadConfiguration(problem)


def _name_problem(node: str) -> str:
    if not _NODE_NAME.fullmatch(node):
        return f"{node!r} is no name of a node: write it in lower case letters, digits, '-' and '.'"
    if len(node) > access.LONGEST_NODE:
        return (
            f"the node's name has {len(node)} characters; an agent's may have {access.LONGEST_NODE}"
        )
    return ""


async def _ensure_roles(kube: Client, owner: ClusterRole) -> None:
    """Give the agent what its Pods need now; from then on the controller follows them."""
    bound = await kube.list(BoundPod, fields={"spec.nodeName": belongings.node_of(owner)})
    needed = roles.needs(pod.needed for pod in bound.items)
    for role in belongings.namespaced_roles(owner, needed):
        await ensuring.present(kube, role)
        await ensuring.present(kube, belongings.binding(role))


async def _mint(kube: Client, node: str, expires: timedelta) -> Identity:
    bound_to = await ensuring.find(kube, Node, node)
    issued = await kube.request_token(
        agent.service_account(node),
        access.NAMESPACE,
        audiences=(),
        expires=expires,
        bound_to=bound_to,
    )
    return Identity(node, issued.token, issued.expires, bound_to is not None)


async def _belongings(kube: Client, node: str) -> AsyncIterator[Object]:
    """Yield what belongs to an agent in the order in which it shall go; the ServiceAccount, and so each token, first."""
    name, account = access.role(node), agent.service_account(node)
    alone: list[tuple[type[Object], str, str | None]] = [
        (ServiceAccount, account, access.NAMESPACE),
        (ClusterRoleBinding, access.enrolment(node), None),
        (ClusterRoleBinding, name, None),
    ]
    for kind, called, namespace in alone:
        if found := await ensuring.find(kube, kind, called, namespace=namespace):
            yield found
    for binding in (await kube.list(RoleBinding, labels=belongings.MARK)).items:
        if binding.name == name:
            yield binding
    for role in (await kube.list(Role, labels=belongings.MARK)).items:
        if role.name == name:
            yield role
    # Last, for it is what a second call would miss if the first was cut before.
    if owner := await ensuring.find(kube, ClusterRole, name):
        yield owner
