"""Prevention of privilege escalation: a user may write a role or binding only with permissions that the user has.

The verbs `escalate` and `bind` on the role lift this. The check runs as `Server.guard` of the request.
"""

from __future__ import annotations

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.auth import rbac, rules
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.auth.authorizer import Authorizer
from bramley.apiserver.auth.rbac import GROUP, RoleRef
from bramley.apiserver.auth.rules import Rule, texts
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.rest.server import Admit, Server

_CHANGES = frozenset({"update", "patch"})
_ROLES = frozenset({"roles", "clusterroles"})
_BINDINGS = frozenset({"rolebindings", "clusterrolebindings"})
# The metadata that the garbage collector changes before it deletes an object.
_COLLECTED = frozenset({"ownerReferences", "finalizers", "resourceVersion", "managedFields"})


def with_guard(server: Server, attributes: Attributes) -> Server:
    """Return the server for a write of a user who is not in `system:masters`."""
    check_roles = _role_guard(server.authorizer, attributes) if attributes.group == GROUP else None
    if attributes.verb not in _CHANGES or attributes.subresource:
        return server if check_roles is None else server.with_guard(check_roles)

    def guard(new: Json, old: Json | None) -> None:
        if old is None:
            # An update that creates an object needs the permission to create it.
            server.authorizer.check(msgspec.structs.replace(attributes, verb="create"))
        if check_roles is not None:
            check_roles(new, old)

    return server.with_guard(guard)


def _role_guard(authorizer: Authorizer, attributes: Attributes) -> Admit | None:
    if attributes.resource not in _ROLES | _BINDINGS:
        return None
    check = _check_role if attributes.resource in _ROLES else _check_binding

    def guard(new: Json, old: Json | None) -> None:
        if old is None or not _is_garbage_collection(new, old):
            check(authorizer, attributes, new, old)

    return guard


def _check_role(
    authorizer: Authorizer, attributes: Attributes, new: Json, old: Json | None
) -> None:
    if _is_allowed(authorizer, attributes, "escalate", attributes.resource, attributes.name):
        return
    granted = msgspec.convert(new.get("rules") or [], list[Rule])
    _refuse_missing(authorizer, attributes, granted, new)
    if _aggregates(new) or (old is not None and _aggregates(old)):
        owned = authorizer.rbac.rules_for(attributes.user, attributes.namespace)
        if rules.uncovered(owned, rules.EVERYTHING):
            reason = "must have cluster-admin privileges to use the aggregationRule"
            raise _refusal(attributes, new, reason)


def _check_binding(
    authorizer: Authorizer, attributes: Attributes, new: Json, _old: Json | None
) -> None:
    reference = msgspec.convert(new["roleRef"], RoleRef)
    resource = "clusterroles" if reference.kind == "ClusterRole" else "roles"
    if _is_allowed(authorizer, attributes, "bind", resource, reference.name):
        return
    role = rbac.role_key(reference, attributes.namespace)
    granted = authorizer.rbac.rules_of(role)
    if granted is None:
        # As in kube-apiserver: the binding's resource with the role's name.
        raise status.not_found(Details(GROUP, attributes.resource, reference.name))
    _refuse_missing(authorizer, attributes, granted, new)


def _is_allowed(
    authorizer: Authorizer, attributes: Attributes, verb: str, resource: str, name: str
) -> bool:
    user, namespace = attributes.user, attributes.namespace
    permission = Attributes(user, verb, GROUP, resource=resource, namespace=namespace, name=name)
    return authorizer.decide(permission).allowed


def _refuse_missing(
    authorizer: Authorizer,
    attributes: Attributes,
    granted: list[Rule] | tuple[Rule, ...],
    new: Json,
) -> None:
    owned = authorizer.rbac.rules_for(attributes.user, attributes.namespace)
    missing = rules.uncovered(owned, granted)
    if not missing:
        return
    user = attributes.user
    listed = sorted({rules.described(rule) for rule in rules.compacted(missing)})
    reason = f"user {quoted(user.name)} (groups={texts(user.groups)}) is attempting to grant RBAC permissions not currently held:"
    missing_roles = authorizer.rbac.missing(user, attributes.namespace)
    errors = f"; resolution errors: [{_join_messages(missing_roles)}]" if missing_roles else ""
    raise _refusal(attributes, new, "\n".join([reason, *listed]) + errors)


def _join_messages(messages: list[str]) -> str:
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"


def _refusal(attributes: Attributes, new: Json, reason: str) -> ApiError:
    return status.forbidden(Details(GROUP, attributes.resource, new["metadata"]["name"]), reason)


def _aggregates(role: Json) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _is_garbage_collection(new: Json, old: Json) -> bool:
    """Return whether an update changes only what the garbage collector changes."""
    new, old = (
        {**role, "metadata": {**role["metadata"], **dict.fromkeys(_COLLECTED)}}
        for role in (new, old)
    )
    return new == old
