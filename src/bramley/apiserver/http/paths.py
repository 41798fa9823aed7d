"""Paths of the API: which resource, namespace, name and subresource a request is about."""

from __future__ import annotations

from typing import NamedTuple

from bramley.apiserver.apimachinery.status import no_such_page, no_such_path
from bramley.apiserver.registry.resources import Catalog, ServedResource
from bramley.apiserver.store.records import Key

# What stands behind a namespace's name and is not a resource inside of it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class Target(NamedTuple):
    """What a path names; `namespace` and `name` are empty where the path has none."""

    resource: ServedResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    legacy_watch: bool = False

    @property
    def key(self) -> Key:
        """Return the key of the object in the store."""
        return Key(self.resource.stored_name, self.namespace, self.name)


def split(path: str) -> list[str]:
    """Return the parts of a path; slashes at the end are tolerated."""
    return path.strip("/").split("/")


def find(path: str, catalog: Catalog) -> Target:
    """Return what a resource path names; raise a 404 if nothing is served there."""
    group, version, rest = _group_version(split(path))
    legacy_watch = rest[:1] == ["watch"]
    if legacy_watch:
        rest = rest[1:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    if rest[2:3] == ["proxy"]:
        rest = rest[:3]
    if not 1 <= len(rest) <= 3 or not all(rest):
        raise no_such_path()
    resource = catalog.find(group, version, rest[0])
    name, subresource, *_ = [*rest[1:], "", ""]
    if resource is None:
        raise no_such_path() if catalog.is_builtin(group, version) else no_such_page()
    if not _in_scope(resource, namespace, name):
        raise no_such_path()
    return Target(resource, namespace, name, subresource, legacy_watch)


def _group_version(parts: list[str]) -> tuple[str, str, list[str]]:
    if parts[0] == "api" and len(parts) > 2:
        return "", parts[1], parts[2:]
    if parts[0] == "apis" and len(parts) > 3:
        return parts[1], parts[2], parts[3:]
    raise no_such_path()


def _in_scope(resource: ServedResource, namespace: str, name: str) -> bool:
    if resource.namespaced:
        return bool(namespace) or not name
    return not namespace
