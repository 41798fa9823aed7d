"""The environment variables of a guest: literal values, and values from Secrets, ConfigMaps, fields of the Pod and its resources.

`env` overrides `envFrom`, as everywhere in Kubernetes. Objects are read one by one by name, because an agent may not list them. A
variable without a value raises `Unresolved` with the variable's name, never with a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from bramley.agent import pod_fields
from bramley.api import quantities
from bramley.api.core import ConfigMap, Secret
from bramley.api.meta import K
from bramley.api.pod import (
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    KeySelector,
    Pod,
    Quantity,
    ResourceFieldSelector,
)
from bramley.base import errors, log

ADDRESSES = frozenset({"status.podIP", "status.podIPs"})
_LABEL_OR_ANNOTATION = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class Unresolved(errors.BramleyError):
    """A variable has no value yet: the object that it refers to does not exist or is not readable."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts of the Node for the downward API: its name, the host's address or name, and the allocatable resources."""

    node: str
    host: str = ""
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)


def field_value(path: str, pod: Pod, node_facts: NodeFacts, *, label: str) -> str | None:
    """Return a field of the Pod; None while it is unknown, Unresolved if it is not supported."""
    match = _LABEL_OR_ANNOTATION.fullmatch(path)
    if match is not None:
        map_name, key = match.groups()
        values = pod.metadata.labels if map_name == "labels" else pod.metadata.annotations
        return values.get(key, "")
    fields = _fields(pod, node_facts)
    if path not in fields:
        raise Unresolved(f"{label}: field {path} is not supported")
    return fields[path] or (None if path in ADDRESSES else "")


def resource_value(
    selector: ResourceFieldSelector, pod: Pod, node_facts: NodeFacts, *, label: str
) -> str:
    """Return an amount of the container's resources in units of the divisor, rounded up."""
    container = pod_fields.container(pod)
    if selector.container_name not in {"", container.name}:
        raise Unresolved(f"{label}: there is no container {selector.container_name}")
    section, _, resource = selector.resource.partition(".")
    amounts = {"limits": container.resources.limits, "requests": container.resources.requests}
    if section not in amounts or not resource:
        raise Unresolved(f"{label}: resource {selector.resource} is not supported")
    # Without a limit the downward API returns the Node's allocatable resources.
    default = node_facts.allocatable.get(resource, "0") if section == "limits" else "0"
    return _divide(amounts[section].get(resource, default), selector.divisor, label)


def _fields(pod: Pod, node_facts: NodeFacts) -> Mapping[str, str]:
    addresses = [address.ip for address in pod.status.pod_ips]
    return {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace or "",
        "metadata.uid": pod.uid,
        "spec.nodeName": pod.spec.node_name or node_facts.node,
        "spec.serviceAccountName": pod_fields.service_account(pod),
        "status.hostIP": node_facts.host,
        "status.hostIPs": node_facts.host,
        "status.podIP": pod.status.pod_ip,
        "status.podIPs": ",".join(addresses) or pod.status.pod_ip,
    }


def _divide(amount: Quantity, divisor: Quantity, label: str) -> str:
    try:
        value = quantities.parse(str(amount)).value
        unit = quantities.parse(str(divisor or "1")).value
    except quantities.InvalidQuantity as error:
        raise Unresolved(f"{label}: {error} is not a quantity") from error
    return str(ceil(value / (unit or 1)))


logger = log.get(__name__)

_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")

ObjectData = Mapping[str, str | bytes]


class ObjectReader(Protocol):
    """Reads objects by name."""

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        """Return one object."""
        ...


async def resolve(pod: Pod, kube: ObjectReader, node_facts: NodeFacts) -> dict[str, str]:
    """Return all variables of a Pod's guest; Unresolved if one that is not optional has no value.

    The VM's address is known only once it runs: until then variables with it are omitted, see `awaits_address`.
    """
    objects = _ObjectCache(kube, pod.namespace or "")
    container = pod_fields.container(pod)
    variables: dict[str, str] = {}
    for source in container.env_from:
        variables |= await _variables_of_object(source, objects)
    for variable in container.env:
        value = await _value_of(variable, pod, node_facts, objects)
        if value is not None:
            variables[variable.name] = value
    return variables


def awaits_address(pod: Pod) -> bool:
    """Return whether a variable refers to the VM's address, so that the file must be written again once it is known."""
    sources = [source.value_from for container in pod.spec.containers for source in container.env]
    paths = {source.field_ref.field_path for source in sources if source and source.field_ref}
    return not ADDRESSES.isdisjoint(paths)


@dataclass(frozen=True, slots=True)
class _ObjectCache:
    """The Secrets and ConfigMaps of one namespace, each read once."""

    kube: ObjectReader
    namespace: str
    cached: dict[tuple[str, str], ObjectData | None] = field(default_factory=dict)

    async def find(
        self, kind: type[Secret | ConfigMap], name: str, label: str
    ) -> ObjectData | None:
        """Return the data of an object, or None if it does not exist."""
        key = (kind.resource.plural, name)
        if key not in self.cached:
            self.cached[key] = await self._read(kind, name, label)
        return self.cached[key]

    async def _read(
        self, kind: type[Secret | ConfigMap], name: str, label: str
    ) -> ObjectData | None:
        try:
            obj = await self.kube.get(kind, name, namespace=self.namespace)
        except errors.NotFound:
            return None
        except errors.Forbidden as error:
            # The permission follows the Pod's binding; on a real cluster it may come a moment later.
            raise Unresolved(f"{label}: the agent is not allowed to read it") from error
        return obj.data


async def _variables_of_object(source: EnvFromSource, objects: _ObjectCache) -> dict[str, str]:
    """Return the variables of an `envFrom` entry."""
    variables: dict[str, str] = {}
    for kind, ref in ((Secret, source.secret_ref), (ConfigMap, source.config_map_ref)):
        if ref is None:
            continue
        label = f"envFrom {_kind_name(kind)} {objects.namespace}/{ref.name}"
        values = await objects.find(kind, ref.name, label)
        if values is None and not ref.optional:
            raise Unresolved(f"{label}: not found")
        for key, value in (values or {}).items():
            variables[f"{source.prefix}{key}"] = _text(value, f"{label} key {key}")
    return {name: value for name, value in variables.items() if _is_valid_name(name)}


def _is_valid_name(name: str) -> bool:
    if _NAME.fullmatch(name):
        return True
    logger.warning("Skipping invalid environment variable name", key=name)
    return False


async def _value_of(
    variable: EnvVar, pod: Pod, node_facts: NodeFacts, objects: _ObjectCache
) -> str | None:
    """Return the value of one variable; None to omit it."""
    label = f"env {variable.name}"
    if not _NAME.fullmatch(variable.name):
        raise Unresolved(f"{label}: the name is not valid")
    source = variable.value_from
    if source is None:
        return _text(variable.value, label)
    if source.field_ref is not None:
        return field_value(source.field_ref.field_path, pod, node_facts, label=label)
    if source.resource_field_ref is not None:
        return resource_value(source.resource_field_ref, pod, node_facts, label=label)
    return await _value_of_key(source, objects, label)


async def _value_of_key(source: EnvVarSource, objects: _ObjectCache, label: str) -> str | None:
    kind: type[Secret | ConfigMap] = Secret
    ref: KeySelector | None = source.secret_key_ref
    if ref is None:
        kind, ref = ConfigMap, source.config_map_key_ref
    if ref is None:
        raise Unresolved(f"{label}: the source of its value is not supported")
    where = f"{label}: {_kind_name(kind)} {ref.name}"
    values = await objects.find(kind, ref.name, where)
    if values is not None and ref.key in values:
        return _text(values[ref.key], f"{where} key {ref.key}")
    if ref.optional:
        return None
    raise Unresolved(f"{where} not found" if values is None else f"{where} missing key {ref.key}")


def _kind_name(kind: type[Secret | ConfigMap]) -> str:
    return kind.resource.kind.lower()


def _text(value: str | bytes, label: str) -> str:
    """Return the value as text; the error does not contain it."""
    try:
        text = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise Unresolved(f"{label} is not valid UTF-8") from None
    if "\0" in text:
        raise Unresolved(f"{label} contains a NUL byte")
    return text
