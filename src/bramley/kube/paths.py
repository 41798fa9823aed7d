"""Paths into the API, built so that no name can lead out of its place.

A name or namespace is one path segment or it is refused: an empty one would turn `delete this` into `delete all`, and a
slash, a dot-dot or a percent sign would reach another object. What passes is percent-encoded.
"""

from __future__ import annotations

from urllib.parse import quote

from bramley.api.meta import Resource
from bramley.base import errors

LONGEST_SEGMENT = 253


def of_collection(resource: Resource, namespace: str | None = None) -> str:
    """Return the path of all objects of a kind, of one namespace or of all."""
    if namespace is None:
        return resource.path()
    _check_scope(resource, namespace)
    return resource.path(_segment("namespace", namespace))


def of_namespace(resource: Resource, namespace: str | None) -> str:
    """Return the path under which objects are created or deleted together; a namespaced kind needs its namespace."""
    _check_scope(resource, namespace)
    return of_collection(resource, namespace)


def of_object(
    resource: Resource, name: str, *, namespace: str | None = None, subresource: str | None = None
) -> str:
    """Return the path of one object, or of one of its subresources."""
    _check_scope(resource, namespace)
    part = None if subresource is None else _segment("subresource", subresource)
    place = None if namespace is None else _segment("namespace", namespace)
    return resource.path(place, _segment("name", name), part)


def _check_scope(resource: Resource, namespace: str | None) -> None:
    if resource.namespaced and namespace is None:
        raise errors.BadRequest(f"a {resource.kind} lives in a namespace, and none was given")
    if not resource.namespaced and namespace is not None:
        raise errors.BadRequest(f"a {resource.kind} lives in no namespace, yet one was given")


def _segment(what: str, text: str) -> str:
    unfit = not text or text in {".", ".."} or len(text) > LONGEST_SEGMENT
    if unfit or any(char in "/%" or not char.isprintable() for char in text):
        raise errors.BadRequest(f"{text[:LONGEST_SEGMENT]!r} cannot be a {what}")
    return quote(text, safe=":")
