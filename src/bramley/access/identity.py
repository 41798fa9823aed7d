"""Creates and revokes the identity of an agent, on either API server.

Every step is idempotent: a second call after an interruption finishes what the first began, and a call for an existing agent
updates its permissions and issues a new token. Revoking invalidates the tokens first: they end with the ServiceAccount.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.access import agent_objects, policy, roles, upsert
from bramley.access.pod_references import BoundPod
from bramley.access.registration import Registration
from bramley.api.core import ServiceAccount
from bramley.api.meta import Object
from bramley.api.names import access, agent
from bramley.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from bramley.base import errors, log
from bramley.base.secret import Secret
from bramley.kube.client import Client

logger = log.get(__name__)

MIN_TOKEN_LIFETIME = timedelta(minutes=10)
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Identity:
    """A new token of an agent, and its expiry."""

    node: str
    token: Secret
    expires: datetime


async def create(
    kube: Client, node: str, *, expires: timedelta, registration: Registration | None = None
) -> Identity:
    """Create the ServiceAccount of a Node's agent with an agent's permissions, and issue its token.

    The labels and taints of the Node are recorded on it; without a registration, an earlier record stays.
    The token ends with the ServiceAccount, and not with the Node: an agent registers its Node again if that was deleted.
    """
    _check(node, expires)
    record = registration.annotations() if registration is not None else {}
    await ensure_shared(kube)
    # First: it owns all the others, so whatever an interruption leaves is found and deleted by it.
    owner = await upsert.create_or_update(kube, agent_objects.own_role(node))
    for binding in agent_objects.cluster_bindings(owner):
        await upsert.create_or_update(kube, binding)
    await upsert.create_or_update(kube, agent_objects.account(owner, record))
    await _ensure_roles(kube, owner)
    # Last: an agent that starts with the token has all of its permissions.
    return await _issue_token(kube, node, expires)


async def ensure_shared(kube: Client) -> None:
    """Create what all agents share; the policy must exist before any permission that it restricts."""
    for obj in policy.objects():
        await upsert.create_or_update(kube, obj)
    await upsert.create_or_update(kube, agent_objects.namespace())
    await upsert.create_or_update(kube, agent_objects.shared_role())


async def revoke(kube: Client, node: str) -> bool:
    """Revoke an agent's identity, its tokens first; return whether there was one."""
    if problem := _name_problem(node):
        raise errors.BadConfiguration(problem)
    existed = False
    async for item in _objects(kube, node):
        existed = True
        # Deleted already, or replaced by another object of the same name: either way this one is gone.
        with suppress(errors.NotFound, errors.Conflict):
            await kube.delete(type(item), item.name, namespace=item.namespace, uid=item.uid)
    logger.info("Revoked agent identity", node=node)
    return existed


def _check(node: str, expires: timedelta) -> None:
    problem = _name_problem(node)
    if not problem and expires < MIN_TOKEN_LIFETIME:
        problem = "the token lifetime must be at least 10 minutes; use a longer --token-lifetime"
    if problem:
        raise errors.BadConfiguration(problem)


def _name_problem(node: str) -> str:
    if not _NODE_NAME.fullmatch(node):
        return f"{node!r} is not a valid node name: use lower case letters, digits, '-' and '.'"
    if len(node) > access.MAX_NODE_LENGTH:
        return f"the node name has {len(node)} characters; at most {access.MAX_NODE_LENGTH} are allowed"
    return ""


async def _ensure_roles(kube: Client, owner: ClusterRole) -> None:
    """Grant what the agent's present Pods need; from then on the controller keeps it up to date."""
    bound = await kube.list(BoundPod, fields={"spec.nodeName": agent_objects.node_of(owner)})
    needed = roles.needs(pod.needed for pod in bound.items)
    for role in agent_objects.namespaced_roles(owner, needed):
        await upsert.create_or_update(kube, role)
        await upsert.create_or_update(kube, agent_objects.binding(role))


async def _issue_token(kube: Client, node: str, expires: timedelta) -> Identity:
    issued = await kube.request_token(
        agent.service_account(node),
        access.NAMESPACE,
        audiences=(),
        expires=expires,
    )
    return Identity(node, issued.token, issued.expires)


async def _objects(kube: Client, node: str) -> AsyncIterator[Object]:
    """Yield the objects of an agent in the order of their deletion; the ServiceAccount, and so each token, first."""
    name, account = access.role(node), agent.service_account(node)
    single: list[tuple[type[Object], str, str | None]] = [
        (ServiceAccount, account, access.NAMESPACE),
        (ClusterRoleBinding, access.enrolment(node), None),
        (ClusterRoleBinding, name, None),
    ]
    for kind, object_name, namespace in single:
        if obj := await upsert.find(kube, kind, object_name, namespace=namespace):
            yield obj
    for binding in (await kube.list(RoleBinding, labels=agent_objects.LABELS)).items:
        if binding.name == name:
            yield binding
    for role in (await kube.list(Role, labels=agent_objects.LABELS)).items:
        if role.name == name:
            yield role
    # Must stay last: a second call after an interruption finds the rest by it.
    if owner := await upsert.find(kube, ClusterRole, name):
        yield owner
