"""The OpenAPI documents of what is served: an index, and one document per group and version.

A document is known by a hash of what it is made of, so the index costs nothing that is not asked for, and a document that
did not change is made once, whatever definitions come and go beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from bramley.apiserver.openapi import custom, operations, packaged
from bramley.apiserver.openapi.operations import Names
from bramley.apiserver.registry.resources import Catalog, Json, ServedResource
from bramley.apiserver.rest.subresources import EXTRA

_SECURITY = {
    "BearerToken": {
        "type": "apiKey",
        "description": "Bearer Token authentication",
        "name": "authorization",
        "in": "header",
    }
}
_ALWAYS = frozenset(
    {
        packaged.STATUS,
        packaged.PATCH,
        packaged.DELETE_OPTIONS,
        packaged.OBJECT_META,
        packaged.LIST_META,
    }
)


class Documents:
    """The documents of a catalog; `version` is the Kubernetes version that the server says it has."""

    def __init__(self, catalog: Catalog, version: str) -> None:
        self._catalog = catalog
        self.version = version
        self._hashed_of = -1
        self._hashes: dict[str, str] = {}
        self._made: dict[str, tuple[str, bytes]] = {}

    def index(self) -> bytes:
        """Return where the documents are."""
        paths = {
            path: {"serverRelativeURL": self.address(path)} for path in sorted(self._current())
        }
        return msgspec.json.encode({"paths": paths})

    def address(self, path: str) -> str:
        """Return the address of a document, with its hash."""
        return f"/openapi/v3/{path}?hash={self._current()[path]}"

    def find_hash(self, path: str) -> str | None:
        """Return the hash of the document at a path such as `apis/apps/v1`, or None if there is none."""
        return self._current().get(path)

    def document(self, path: str) -> bytes:
        """Return the document at a path that has one."""
        wanted = self._current()[path]
        known, body = self._made.get(path, ("", b""))
        if known != wanted:
            body = _built(self._served()[path], self.version)
            self._made[path] = (wanted, body)
        return body

    def _served(self) -> dict[str, list[ServedResource]]:
        found: dict[str, list[ServedResource]] = {}
        for each in self._catalog:
            found.setdefault(_path(each), []).append(each)
        return found

    def _current(self) -> dict[str, str]:
        if self._hashed_of != self._catalog.changes:
            self._hashed_of = self._catalog.changes
            self._hashes = {path: _hash(each) for path, each in self._served().items()}
            self._made = {path: self._made[path] for path in self._made if path in self._hashes}
        return self._hashes


def _path(resource: ServedResource) -> str:
    prefix = f"apis/{resource.group}" if resource.group else "api"
    return f"{prefix}/{resource.version}"


def _hash(served: Iterable[ServedResource]) -> str:
    facts = [
        (
            each.plural,
            each.kind,
            each.list_kind,
            each.namespaced,
            each.verbs,
            each.has_status,
            each.scale is not None,
            each.is_custom,
            [field.name for field in each.selectable] if each.is_custom else None,
            each.schema,
        )
        for each in sorted(served, key=lambda each: each.plural)
    ]
    return hashlib.sha512(msgspec.json.encode(facts)).hexdigest().upper()


def _built(served: list[ServedResource], version: str) -> bytes:
    paths: Json = {}
    own: dict[str, Any] = {}
    roots: set[str] = set()
    for each in sorted(served, key=lambda each: each.plural):
        names = _names(each)
        if names is None:
            continue
        paths |= operations.paths(each, names)
        roots |= _roots(each, names)
        own |= custom.schemas(each) if _has_own(each) else {}
    is_custom = any(each.is_custom for each in served)
    title = ("Kubernetes CRD Swagger", "v0.1.0") if is_custom else ("Kubernetes", version)
    security = {} if is_custom else {"securitySchemes": _SECURITY}
    document = {
        "openapi": "3.0.0",
        "info": {"title": title[0], "version": title[1]},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {**own, **packaged.closure(roots)}, **security},
    }
    return msgspec.json.encode(document)


def _names(resource: ServedResource) -> Names | None:
    """Return the names of a resource's schemas, or None for a built-in kind of which no schema is known."""
    if _has_own(resource):
        return Names(
            custom.name_of(resource, resource.kind), custom.name_of(resource, resource.list_kind)
        )
    own = packaged.name_of(resource.group, resource.version, resource.kind)
    lists = packaged.name_of(resource.group, resource.version, resource.list_kind)
    return None if own is None else Names(own, lists or own)


def _has_own(resource: ServedResource) -> bool:
    """Tell whether a resource brings its schema along, instead of having a packaged one."""
    return resource.is_custom or resource.schema is not None


def _roots(resource: ServedResource, names: Names) -> set[str]:
    extra = {
        packaged.name_of(each.group, each.version, each.kind)
        for (qualified, _), each in EXTRA.items()
        if qualified == resource.qualified
    }
    scale = {packaged.SCALE} if resource.scale is not None else set()
    always = set() if resource.is_virtual else _ALWAYS
    return {each for each in {*names, *extra} if each} | scale | always
