"""The OpenAPI documents: an index, one document per group and version, and the pages below `/openapi` that serve them.

A document is identified by a hash of its inputs, so the index is cheap, and a document is built once until its resources
change. OpenAPI v2 is served without any content: clients request it when they find a group in no v3 document, treat a missing
v2 document as a failure, and an empty one as the absence of the kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any, NamedTuple

import msgspec

from bramley.apiserver.openapi import operations, schemas
from bramley.apiserver.openapi.operations import Names
from bramley.apiserver.registry.resources import Catalog, Json, ServedResource
from bramley.apiserver.rest.routes import SUBRESOURCES

V3 = "/openapi/v3"
V2 = "/openapi/v2"
_JSON = "application/json"
_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE = "Kubernetes"
_ACCEPTED_AS_JSON = frozenset({"application/json", "application/*", "*/*", ""})
_IMMUTABLE_FOR = timedelta(days=365)
_SECURITY = {
    "BearerToken": {
        "type": "apiKey",
        "description": "Bearer Token authentication",
        "name": "authorization",
        "in": "header",
    }
}
_ALWAYS = frozenset(
    {schemas.STATUS, schemas.PATCH, schemas.DELETE_OPTIONS, schemas.OBJECT_META, schemas.LIST_META}
)


class Documents:
    """The documents of a catalog; `version` is the Kubernetes version that the server reports."""

    def __init__(self, catalog: Catalog, version: str) -> None:
        self._catalog = catalog
        self.version = version
        self._generation = -1
        self._hashes: dict[str, str] = {}
        self._documents: dict[str, tuple[str, bytes]] = {}

    def index(self) -> bytes:
        """Return the index of all documents."""
        paths = {
            path: {"serverRelativeURL": self.address(path)} for path in sorted(self._refresh())
        }
        return msgspec.json.encode({"paths": paths})

    def address(self, path: str) -> str:
        """Return the path of a document, with its hash."""
        return f"/openapi/v3/{path}?hash={self._refresh()[path]}"

    def find_hash(self, path: str) -> str | None:
        """Return the hash of the document at a path such as `apis/apps/v1`, or None if there is none."""
        return self._refresh().get(path)

    def document(self, path: str) -> bytes:
        """Return the document at a path that has one."""
        current = self._refresh()[path]
        built_hash, body = self._documents.get(path, ("", b""))
        if built_hash != current:
            body = _build(self._served()[path], self.version)
            self._documents[path] = (current, body)
        return body

    def _served(self) -> dict[str, list[ServedResource]]:
        by_path: dict[str, list[ServedResource]] = {}
        for each in self._catalog:
            by_path.setdefault(_path(each), []).append(each)
        return by_path

    def _refresh(self) -> dict[str, str]:
        if self._generation != self._catalog.generation:
            self._generation = self._catalog.generation
            self._hashes = {path: _hash(each) for path, each in self._served().items()}
            self._documents = {
                path: self._documents[path] for path in self._documents if path in self._hashes
            }
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


def _build(served: list[ServedResource], version: str) -> bytes:
    paths: Json = {}
    custom: dict[str, Any] = {}
    roots: set[str] = set()
    for each in sorted(served, key=lambda each: each.plural):
        names = _names(each)
        if names is None:
            continue
        paths |= operations.paths(each, names)
        roots |= _roots(each, names)
        custom |= schemas.custom_schemas(each) if _has_own_schema(each) else {}
    is_custom = any(each.is_custom for each in served)
    title = ("Kubernetes CRD Swagger", "v0.1.0") if is_custom else ("Kubernetes", version)
    security = {} if is_custom else {"securitySchemes": _SECURITY}
    document = {
        "openapi": "3.0.0",
        "info": {"title": title[0], "version": title[1]},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {**custom, **schemas.closure(roots)}, **security},
    }
    return msgspec.json.encode(document)


def _names(resource: ServedResource) -> Names | None:
    """Return the names of a resource's schemas, or None for a built-in kind of which no schema is known."""
    if _has_own_schema(resource):
        return Names(
            schemas.custom_name(resource, resource.kind),
            schemas.custom_name(resource, resource.list_kind),
        )
    name = schemas.builtin_name(resource.group, resource.version, resource.kind)
    lists = schemas.builtin_name(resource.group, resource.version, resource.list_kind)
    return None if name is None else Names(name, lists or name)


def _has_own_schema(resource: ServedResource) -> bool:
    """Return whether a resource has its own schema instead of a packaged one."""
    return resource.is_custom or resource.schema is not None


def _roots(resource: ServedResource, names: Names) -> set[str]:
    extra = {
        schemas.builtin_name(each.group, each.version, each.kind)
        for (qualified, _), each in SUBRESOURCES.items()
        if qualified == resource.qualified
    }
    scale = {schemas.SCALE} if resource.scale is not None else set()
    always = set() if resource.is_virtual else _ALWAYS
    return {each for each in {*names, *extra} if each} | scale | always


class Page(NamedTuple):
    """A response."""

    code: int
    headers: Mapping[str, str]
    body: bytes = b""


class OpenApiPages:
    """Serves the documents; `now` returns the wall-clock time."""

    def __init__(self, documents: Documents, now: Callable[[], datetime]) -> None:
        self._documents = documents
        self._now = now

    def page(self, path: str, *, accept: str = "", hash: str = "", if_none_match: str = "") -> Page:
        """Return the page at a path; `hash` is the one in the URL, `if_none_match` the entity tag that the client has cached."""
        if path == V2:
            return _v2_page(accept, self._documents.version)
        if path == V3:
            return Page(200, {"content-type": _JSON}, self._documents.index())
        name = path.removeprefix(f"{V3}/")
        current = self._documents.find_hash(name)
        if current is None:
            return Page(404, {})
        if not any(_media(each) in _ACCEPTED_AS_JSON for each in accept.split(",")):
            return Page(406, {"vary": "Accept"})
        headers = {"etag": f'"{current}"', "vary": "Accept"}
        if hash and hash != current:
            return Page(301, {**headers, "location": self._documents.address(name)})
        if hash:
            headers |= self._immutable()
        if if_none_match == headers["etag"]:
            return Page(304, headers)
        return Page(200, {**headers, "content-type": _JSON}, self._documents.document(name))

    def _immutable(self) -> Mapping[str, str]:
        expires = format_datetime(self._now() + _IMMUTABLE_FOR, usegmt=True)
        return {"cache-control": "public, immutable", "expires": expires}


def _v2_page(accept: str, version: str) -> Page:
    """Return an empty v2 document in the first accepted format."""
    for clause in accept.split(","):
        # Clients request it by a name with `@`, but expect a valid media type in the response.
        if _media(clause).replace("@", ".") == _V2_PROTOBUF:
            return Page(
                200, {"content-type": _V2_PROTOBUF, "vary": "Accept"}, _v2_protobuf(version)
            )
        if _media(clause) in _ACCEPTED_AS_JSON:
            info = {"title": _TITLE, "version": version}
            body = msgspec.json.encode({"swagger": "2.0", "info": info, "paths": {}})
            return Page(200, {"content-type": _JSON, "vary": "Accept"}, body)
    return Page(406, {"vary": "Accept"})


def _v2_protobuf(version: str) -> bytes:
    info = _text_field(1, _TITLE) + _text_field(2, version)
    return _text_field(1, "2.0") + bytes([2 << 3 | 2, len(info)]) + info


def _text_field(number: int, text: str) -> bytes:
    return bytes([number << 3 | 2, len(text)]) + text.encode()


def _media(clause: str) -> str:
    return clause.partition(";")[0].strip().lower()
