"""The guard against giving away what one does not have: roles and bindings may only pass on rights that their writer holds.

Unless the writer may `escalate` the role, or `bind` it. The same guard is the place where other rules look at what a caller
writes, see `Server.guard`.
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
# What the garbage collector changes on its way to delete an object.
_COLLECTED = frozenset({"ownerReferences", "finalizers", "resourceVersion", "managedFields"})


def guarded(server: Server, asked: Attributes) -> Server:
    """Return the server for a write of somebody who may not do everything."""
    look = _for_roles(server.authorizer, asked) if asked.group == GROUP else None
    if asked.verb not in _CHANGES or asked.subresource:
        return server if look is None else server.guarded(look)

    def guard(new: Json, old: Json | None) -> None:
        if old is None:
            # An update that makes an object needs the right to create it.
            server.authorizer.check(msgspec.structs.replace(asked, verb="create"))
        if look is not None:
            look(new, old)

    return server.guarded(guard)


def _for_roles(authorizer: Authorizer, asked: Attributes) -> Admit | None:
    if asked.resource not in _ROLES | _BINDINGS:
        return None
    check = _check_role if asked.resource in _ROLES else _check_binding

    def guard(new: Json, old: Json | None) -> None:
        if old is None or not _only_collects(new, old):
            check(authorizer, asked, new, old)

    return guard


def _check_role(authorizer: Authorizer, asked: Attributes, new: Json, old: Json | None) -> None:
    if _may(authorizer, asked, "escalate", asked.resource, asked.name):
        return
    wanted = msgspec.convert(new.get("rules") or [], list[Rule])
    _refuse_missing(authorizer, asked, wanted, new)
    if _aggregates(new) or (old is not None and _aggregates(old)):
        owned = authorizer.rbac.rules_for(asked.user, asked.namespace)
        if rules.uncovered(owned, rules.EVERYTHING):
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise _refusal(asked, new, why)


def _check_binding(authorizer: Authorizer, asked: Attributes, new: Json, _old: Json | None) -> None:
    reference = msgspec.convert(new["roleRef"], RoleRef)
    resource = "clusterroles" if reference.kind == "ClusterRole" else "roles"
    if _may(authorizer, asked, "bind", resource, reference.name):
        return
    role = rbac.role_key(reference, asked.namespace)
    wanted = authorizer.rbac.rules_of(role)
    if wanted is None:
        # A real server names the binding's resource and the role's name.
        raise status.not_found(Details(GROUP, asked.resource, reference.name))
    _refuse_missing(authorizer, asked, wanted, new)


def _may(authorizer: Authorizer, asked: Attributes, verb: str, resource: str, name: str) -> bool:
    wish = Attributes(
        asked.user,
        verb,
        GROUP,
        resource=resource,
        namespace=asked.namespace,
        name=name,
    )
    return authorizer.decide(wish).allowed


def _refuse_missing(
    authorizer: Authorizer, asked: Attributes, wanted: list[Rule] | tuple[Rule, ...], new: Json
) -> None:
    owned = authorizer.rbac.rules_for(asked.user, asked.namespace)
    missing = rules.uncovered(owned, wanted)
    if not missing:
        return
    user = asked.user
    told = sorted({rules.described(rule) for rule in rules.compacted(missing)})
    why = f"user {quoted(user.name)} (groups={texts(user.groups)}) is attempting to grant RBAC permissions not currently held:"
    gone = authorizer.rbac.missing(user, asked.namespace)
    errors = f"; resolution errors: [{_joined(gone)}]" if gone else ""
    raise _refusal(asked, new, "\n".join([why, *told]) + errors)


def _joined(complaints: list[str]) -> str:
    return complaints[0] if len(complaints) == 1 else f"[{', '.join(complaints)}]"


def _refusal(asked: Attributes, new: Json, why: str) -> ApiError:
    return status.forbidden(Details(GROUP, asked.resource, new["metadata"]["name"]), why)


def _aggregates(role: Json) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _only_collects(new: Json, old: Json) -> bool:
    """Tell whether an update touches only what must change for the object to go."""
    return _without_collected(new) == _without_collected(old)


def _without_collected(whole: Json) -> Json:
    kept = {key: value for key, value in whole["metadata"].items() if key not in _COLLECTED}
    return {**whole, "metadata": kept}
