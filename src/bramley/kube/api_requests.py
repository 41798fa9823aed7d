"""Paths and bodies of API requests.

A name or namespace is exactly one path segment, or it is refused: an empty one would turn `delete this` into `delete all`, and
a slash, a dot-dot or a percent sign would reach another object. What passes is percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec

from bramley.api.auth import BoundObjectReference, TokenRequest, TokenRequestSpec
from bramley.api.meta import Object, ObjectMeta, Resource, to_wire
from bramley.api.policy import DeleteOptions, Eviction, Preconditions
from bramley.base import errors
from bramley.base.secret import Secret

MAX_SEGMENT_LENGTH = 253


def collection_path(resource: Resource, namespace: str | None = None) -> str:
    """Return the path of all objects of a kind, of one namespace or of all."""
    if namespace is None:
        return resource.path()
    _check_scope(resource, namespace)
    return resource.path(_segment("namespace", namespace))


def namespaced_path(resource: Resource, namespace: str | None) -> str:
    """Return the path to create or delete objects in; a namespaced kind needs its namespace."""
    _check_scope(resource, namespace)
    return collection_path(resource, namespace)


def object_path(
    resource: Resource, name: str, *, namespace: str | None = None, subresource: str | None = None
) -> str:
    """Return the path of one object, or of one of its subresources."""
    _check_scope(resource, namespace)
    namespace_segment = None if namespace is None else _segment("namespace", namespace)
    subresource_segment = None if subresource is None else _segment("subresource", subresource)
    return resource.path(namespace_segment, _segment("name", name), subresource_segment)


def _check_scope(resource: Resource, namespace: str | None) -> None:
    if resource.namespaced and namespace is None:
        raise errors.BadRequest(f"a {resource.kind} is namespaced; give a namespace")
    if not resource.namespaced and namespace is not None:
        raise errors.BadRequest(f"a {resource.kind} is cluster-scoped; leave the namespace out")


def _segment(name: str, text: str) -> str:
    is_invalid = not text or text in {".", ".."} or len(text) > MAX_SEGMENT_LENGTH
    if is_invalid or any(char in "/%" or not char.isprintable() for char in text):
        raise errors.BadRequest(f"{text[:MAX_SEGMENT_LENGTH]!r} is not a valid {name}")
    # Names of RBAC objects contain colons, which a path may contain as they are.
    return quote(text, safe=":")


def without_none(**values: str | None) -> dict[str, str]:
    """Return the parameters that are not None."""
    return {key: value for key, value in values.items() if value is not None}


def with_preconditions(
    patch: Mapping[str, Any], *, resource_version: str | None, uid: str | None
) -> dict[str, Any]:
    """Return a merge patch that the server refuses when the object has another uid or version."""
    preconditions = without_none(resourceVersion=resource_version, uid=uid)
    if not preconditions:
        return dict(patch)
    return {**patch, "metadata": {**patch.get("metadata", {}), **preconditions}}


@contextmanager
def uid_mismatch_as_conflict() -> Iterator[None]:
    """Raise Conflict where the server refuses to change a uid: it is another object of the same name."""
    try:
        yield
    except errors.InvalidSpec as error:
        if any(cause.field == "metadata.uid" for cause in error.causes):
            raise errors.Conflict(str(error)) from error
        raise


def with_identity(
    resource: Resource, body: Mapping[str, Any], *, name: str, namespace: str | None
) -> dict[str, Any]:
    """Return a body with apiVersion, kind, name and namespace, as apply requires."""
    metadata = without_none(name=name, namespace=namespace)
    identity = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**body, **identity, "metadata": {**body.get("metadata", {}), **metadata}}


def delete_options(
    *,
    uid: str | None = None,
    resource_version: str | None = None,
    grace: timedelta | None = None,
    propagation: str | None = None,
) -> DeleteOptions:
    """Return DeleteOptions; with a uid or version as precondition."""
    preconditions = Preconditions(uid=uid, resource_version=resource_version)
    return DeleteOptions(
        grace_period_seconds=None if grace is None else int(grace.total_seconds()),
        preconditions=None if preconditions == Preconditions() else preconditions,
        propagation_policy=propagation,
    )


def eviction(
    pod_name: str, namespace: str, *, grace: timedelta | None, uid: str | None
) -> dict[str, Any]:
    """Return an Eviction of one Pod; with a uid, only of exactly that one."""
    metadata = ObjectMeta(name=pod_name, namespace=namespace)
    return to_wire(Eviction(metadata=metadata, delete_options=delete_options(grace=grace, uid=uid)))


def binding(pod: Object, node: str) -> dict[str, Any]:
    """Return a Binding of exactly this Pod to a Node."""
    metadata = without_none(name=pod.name, namespace=pod.namespace, uid=pod.uid or None)
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def token_request(
    audiences: Sequence[str], expires: timedelta, bound_to: Object | None
) -> dict[str, Any]:
    """Return a TokenRequest; a token bound to an object is invalid once that is deleted."""
    spec = TokenRequestSpec(
        audiences=list(audiences),
        expiration_seconds=int(expires.total_seconds()),
        bound_object_ref=None if bound_to is None else _reference(bound_to),
    )
    return to_wire(TokenRequest(spec=spec))


def _reference(obj: Object) -> BoundObjectReference:
    return BoundObjectReference(
        api_version=obj.resource.api_version,
        kind=obj.resource.kind,
        name=obj.name,
        uid=obj.uid,
    )


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token issued for a ServiceAccount, and when it expires."""

    token: Secret
    expires: datetime


_TOKEN_RESPONSE = msgspec.json.Decoder(TokenRequest)


def issued_token(body: bytes) -> IssuedToken:
    """Decode the response to a TokenRequest."""
    try:
        status = _TOKEN_RESPONSE.decode(body).status
    except msgspec.MsgspecError:
        # The cause is dropped on purpose: its text could quote the response, which holds a token.
        raise errors.ApiUnavailable("the server's response is not a TokenRequest") from None
    if not status.token or status.expiration_timestamp is None:
        raise errors.ApiUnavailable("the server's response has no token")
    return IssuedToken(Secret(status.token), status.expiration_timestamp)
