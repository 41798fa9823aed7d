"""Which handler serves a method on a target; a table, so that a later subresource is one more line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.rest import creating, deleting, listing, scaling, updating
from bramley.apiserver.rest.subresources import COMPUTED, EXTRA, VERBS, VIRTUAL, Handler

__all__ = ["Handler", "handler_of", "has_subresource"]

# What a target can be: the whole collection, one object, or a subresource of one.
_COLLECTION: Mapping[str, tuple[str, Handler]] = MappingProxyType(
    {
        "POST": ("create", creating.create),
        "DELETE": ("deletecollection", deleting.delete_many),
    }
)
_OBJECT: Mapping[str, tuple[str, Handler]] = MappingProxyType(
    {
        "GET": ("get", listing.get),
        "PUT": ("update", updating.replace),
        "PATCH": ("patch", updating.patch),
        "DELETE": ("delete", deleting.delete),
    }
)
_STATUS: Mapping[str, Handler] = MappingProxyType(
    {"GET": listing.get, "PUT": updating.replace, "PATCH": updating.patch}
)
_SCALE: Mapping[str, Handler] = MappingProxyType(
    {"GET": scaling.get, "PUT": scaling.replace, "PATCH": scaling.patch}
)


def handler_of(method: str, target: Target) -> Handler:
    """Return the handler; raise a 404 for what is no subresource and a 405 for a method that the target does not have."""
    method = "GET" if method == "HEAD" else method
    if target.subresource:
        handler = _subresource(target).get(method)
    elif target.resource.is_computed:
        handler = COMPUTED[target.resource.qualified] if method == "GET" else None
    elif target.resource.is_virtual:
        handler = _virtual(method, target)
    else:
        verb, handler = (_OBJECT if target.name else _COLLECTION).get(method, ("", None))
        if handler is not None and not _allows(target, verb):
            handler = None
    if handler is None:
        raise _refusal(method, target)
    return handler


def has_subresource(target: Target) -> bool:
    """Tell whether what a target names behind an object's name exists."""
    try:
        _subresource(target)
    except ApiError:
        return False
    return True


def _refusal(method: str, target: Target) -> ApiError:
    if not target.resource.is_custom or method not in VERBS:
        return status.method_not_allowed()
    return status.verb_not_supported(target.resource.details(), VERBS[method])


def _virtual(method: str, target: Target) -> Handler | None:
    if target.name:
        raise status.no_such_path()
    return VIRTUAL[target.resource.qualified] if method == "POST" else None


def _allows(target: Target, verb: str) -> bool:
    across_namespaces = target.resource.namespaced and not target.namespace
    return verb in target.resource.verbs and not across_namespaces


def _subresource(target: Target) -> Mapping[str, Handler]:
    if target.subresource == "status" and target.resource.has_status:
        return _STATUS
    if target.subresource == "scale" and target.resource.scale is not None:
        return _SCALE
    extra = EXTRA.get((target.resource.qualified, target.subresource))
    if extra is not None:
        return extra.methods
    raise status.no_such_path()
