"""The Secrets, ConfigMaps and ServiceAccount that a Pod refers to, from its spec as plain JSON.

A reference can be anywhere in a spec, so whole specs are stored. A spec may be unvalidated: invalid parts refer to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from bramley.api.core import Pod
from bramley.api.meta import Object, Resource

# The field selector of Pods that are bound to a Node.
BOUND = "spec.nodeName!="


class BoundPod(Object, frozen=True, kw_only=True):
    """A Pod with its spec as plain JSON."""

    resource: ClassVar[Resource] = Pod.resource

    spec: dict[str, Any] = {}

    @property
    def node(self) -> str:
        """Return the Node that the Pod is bound to, or an empty string."""
        return str(self.spec.get("nodeName") or "")

    @property
    def needed(self) -> tuple[str, str, References]:
        """Return namespace, name and references, for `roles.needs`."""
        return self.namespace or "", self.name, of_spec(self.spec)


Spec = Mapping[str, Any]

DEFAULT_ACCOUNT = "default"

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
# The paths of Secret names in volume sources.
_SECRET_VOLUMES = (
    ("secret", "secretName"),
    ("azureFile", "secretName"),
    ("cephfs", "secretRef", "name"),
    ("cinder", "secretRef", "name"),
    ("flexVolume", "secretRef", "name"),
    ("iscsi", "secretRef", "name"),
    ("rbd", "secretRef", "name"),
    ("scaleIO", "secretRef", "name"),
    ("storageos", "secretRef", "name"),
    ("csi", "nodePublishSecretRef", "name"),
)


class References(msgspec.Struct, frozen=True):
    """What one Pod refers to in its namespace."""

    service_account: str = DEFAULT_ACCOUNT
    secrets: frozenset[str] = frozenset()
    config_maps: frozenset[str] = frozenset()


def of_spec(spec: Spec) -> References:
    """Return everything that a Pod of this spec refers to."""
    account = spec.get("serviceAccountName")
    return References(
        account if isinstance(account, str) and account else DEFAULT_ACCOUNT,
        frozenset(_names(_secrets(spec))),
        frozenset(_names(_config_maps(spec))),
    )


def _secrets(spec: Spec) -> Iterator[Any]:
    for pull in _items(spec, "imagePullSecrets"):
        yield pull.get("name")
    for value_from, env_from in _environment(spec):
        yield _value_at(value_from, "secretKeyRef", "name")
        yield _value_at(env_from, "secretRef", "name")
    for volume in _items(spec, "volumes"):
        for path in _SECRET_VOLUMES:
            yield _value_at(volume, *path)
        for source in _projected(volume):
            yield _value_at(source, "secret", "name")


def _config_maps(spec: Spec) -> Iterator[Any]:
    for value_from, env_from in _environment(spec):
        yield _value_at(value_from, "configMapKeyRef", "name")
        yield _value_at(env_from, "configMapRef", "name")
    for volume in _items(spec, "volumes"):
        yield _value_at(volume, "configMap", "name")
        for source in _projected(volume):
            yield _value_at(source, "configMap", "name")


def _environment(spec: Spec) -> Iterator[tuple[Spec, Spec]]:
    """Yield the `valueFrom` of each variable and each `envFrom`."""
    for field in _CONTAINERS:
        for container in _items(spec, field):
            for variable in _items(container, "env"):
                yield _mapping(variable, "valueFrom"), {}
            for source in _items(container, "envFrom"):
                yield {}, source


def _projected(volume: Spec) -> Iterator[Spec]:
    return _items(_mapping(volume, "projected"), "sources")


def _items(value: Spec, field: str) -> Iterator[Spec]:
    items = value.get(field)
    if isinstance(items, list):
        yield from (item for item in items if isinstance(item, Mapping))


def _mapping(value: Spec, field: str) -> Spec:
    member = value.get(field)
    return member if isinstance(member, Mapping) else {}


def _value_at(value: Spec, *path: str) -> Any:
    for field in path[:-1]:
        value = _mapping(value, field)
    return value.get(path[-1])


def _names(values: Iterator[Any]) -> Iterator[str]:
    return (name for name in values if isinstance(name, str) and name)
