"""The small bodies of the API that are no kinds of ours: delete options, evictions, token requests, preconditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bramley.api.auth import BoundObjectReference, TokenRequest, TokenRequestSpec
from bramley.api.meta import Object, ObjectMeta, Resource, to_wire
from bramley.api.policy import DeleteOptions, Eviction, Preconditions
from bramley.base import errors
from bramley.base.secret import Secret


def known(**values: str | None) -> dict[str, str]:
    """Return the query parameters that were given."""
    return {key: value for key, value in values.items() if value is not None}


def guarded(
    patch: Mapping[str, Any], *, resource_version: str | None, uid: str | None
) -> dict[str, Any]:
    """Return a merge patch that the server refuses when the object is not this one or not this version."""
    guard = known(resourceVersion=resource_version, uid=uid)
    if not guard:
        return dict(patch)
    return {**patch, "metadata": {**patch.get("metadata", {}), **guard}}


@contextmanager
def another_uid_is_a_conflict() -> Iterator[None]:
    """Say Conflict where the server says that a uid cannot be changed: it is another object of the same name."""
    try:
        yield
    except errors.InvalidSpec as error:
        if any(cause.field == "metadata.uid" for cause in error.causes):
            raise errors.Conflict(str(error)) from error
        raise


def named(
    resource: Resource, body: Mapping[str, Any], *, name: str, namespace: str | None
) -> dict[str, Any]:
    """Return a body that says which object it describes, as apply wants it."""
    place = known(name=name, namespace=namespace)
    identity = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**body, **identity, "metadata": {**body.get("metadata", {}), **place}}


def delete_options(
    *,
    uid: str | None = None,
    resource_version: str | None = None,
    grace: timedelta | None = None,
    propagation: str | None = None,
) -> DeleteOptions:
    """Return DeleteOptions; with a uid or a version only the object that is meant is deleted."""
    guard = Preconditions(uid=uid, resource_version=resource_version)
    return DeleteOptions(
        grace_period_seconds=None if grace is None else int(grace.total_seconds()),
        preconditions=None if guard == Preconditions() else guard,
        propagation_policy=propagation,
    )


def eviction(pod_name: str, namespace: str, grace: timedelta | None) -> dict[str, Any]:
    """Return an Eviction of one Pod."""
    place = ObjectMeta(name=pod_name, namespace=namespace)
    return to_wire(Eviction(metadata=place, delete_options=delete_options(grace=grace)))


def binding(pod: Object, node: str) -> dict[str, Any]:
    """Return a Binding of exactly this Pod to a Node."""
    place = known(name=pod.name, namespace=pod.namespace, uid=pod.uid or None)
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": place, "target": target}


def token_request(
    audiences: Sequence[str], expires: timedelta, bound_to: Object | None
) -> dict[str, Any]:
    """Return a TokenRequest; a token bound to an object dies with it."""
    spec = TokenRequestSpec(
        audiences=list(audiences),
        expiration_seconds=int(expires.total_seconds()),
        bound_object_ref=None if bound_to is None else _reference(bound_to),
    )
    return to_wire(TokenRequest(spec=spec))


def _reference(thing: Object) -> BoundObjectReference:
    return BoundObjectReference(
        api_version=thing.resource.api_version,
        kind=thing.resource.kind,
        name=thing.name,
        uid=thing.uid,
    )


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token made for a ServiceAccount, and when it ends."""

    token: Secret
    expires: datetime


_TOKEN_ANSWER = msgspec.json.Decoder(TokenRequest)


def issued_token(body: bytes) -> IssuedToken:
    """Read the answer to a TokenRequest."""
    try:
        found = _TOKEN_ANSWER.decode(body).status
    except msgspec.MsgspecError:
        # The cause is dropped on purpose: its text could quote the answer, which holds a token.
        raise errors.ApiUnavailable("the server's answer is no TokenRequest") from None
    if not found.token or found.expiration_timestamp is None:
        raise errors.ApiUnavailable("the server's answer holds no token")
    return IssuedToken(Secret(found.token), found.expiration_timestamp)
