"""The variables of a guest: what a Pod writes out, and what it takes from Secrets, ConfigMaps, itself and its resources.

`envFrom` comes first and `env` wins, as everywhere in Kubernetes. Objects are read one by one and by name, because that is
all an agent may read. What cannot be had raises `Unresolved` with the name of the variable, never with a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from bramley.agent.pods import fields
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
_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class Unresolved(errors.BramleyError):
    """A variable has no value now; it may have one once the object that it comes from is there, or may be read."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Pod runs: the Node, the host's address or name, and what the Node can give to Pods."""

    node: str
    host: str = ""
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)


def of_field(path: str, pod: Pod, place: Place, *, told: str) -> str | None:
    """Return a field of the Pod; None while it is not known, Unresolved if guests cannot have it."""
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        part, key = keyed.groups()
        values = pod.metadata.labels if part == "labels" else pod.metadata.annotations
        return values.get(key, "")
    known = _fields(pod, place)
    if path not in known:
        raise Unresolved(f"{told}: field {path} is none that a guest can have")
    return known[path] or (None if path in ADDRESSES else "")


def of_resource(asked: ResourceFieldSelector, pod: Pod, place: Place, *, told: str) -> str:
    """Return an amount of the container's resources in units of the divisor, rounded up."""
    container = fields.container(pod)
    if asked.container_name not in {"", container.name}:
        raise Unresolved(f"{told}: there is no container {asked.container_name}")
    side, _, resource = asked.resource.partition(".")
    given = {"limits": container.resources.limits, "requests": container.resources.requests}
    if side not in given or not resource:
        raise Unresolved(f"{told}: resource {asked.resource} is none that a guest can have")
    # Without a limit a container may take what its Node has, and that is what it is told.
    otherwise = place.allocatable.get(resource, "0") if side == "limits" else "0"
    return _in_units(given[side].get(resource, otherwise), asked.divisor, told)


def _fields(pod: Pod, place: Place) -> Mapping[str, str]:
    addresses = [one.ip for one in pod.status.pod_ips]
    return {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace or "",
        "metadata.uid": pod.uid,
        "spec.nodeName": pod.spec.node_name or place.node,
        "spec.serviceAccountName": fields.service_account(pod),
        "status.hostIP": place.host,
        "status.hostIPs": place.host,
        "status.podIP": pod.status.pod_ip,
        "status.podIPs": ",".join(addresses) or pod.status.pod_ip,
    }


def _in_units(amount: Quantity, divisor: Quantity, told: str) -> str:
    try:
        value = quantities.parse(str(amount)).value
        unit = quantities.parse(str(divisor or "1")).value
    except quantities.NoQuantity as error:
        raise Unresolved(f"{told}: {error} is no quantity") from error
    return str(ceil(value / (unit or 1)))


logger = log.get(__name__)

_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")

Held = Mapping[str, str | bytes]


class Reads(Protocol):
    """Reads objects by name."""

    async def get(self, kind: type[K], name: str, *, namespace: str | None = None) -> K:
        """Return one object."""
        ...


async def resolve(pod: Pod, kube: Reads, place: Place) -> dict[str, str]:
    """Return all variables of a Pod's guest; Unresolved if one that is not optional cannot be had.

    The VM's own address is known only once it runs: until then variables of it are left out, see `awaits_address`.
    """
    objects = _Objects(kube, pod.namespace or "")
    container = fields.container(pod)
    found: dict[str, str] = {}
    for source in container.env_from:
        found |= await _of_whole(source, objects)
    for variable in container.env:
        value = await _of_variable(variable, pod, place, objects)
        if value is not None:
            found[variable.name] = value
    return found


def awaits_address(pod: Pod) -> bool:
    """Tell whether a variable holds the VM's address, so that the file has to be written again once that is known."""
    sources = [one.value_from for container in pod.spec.containers for one in container.env]
    paths = {one.field_ref.field_path for one in sources if one and one.field_ref}
    return not ADDRESSES.isdisjoint(paths)


@dataclass(frozen=True, slots=True)
class _Objects:
    """The Secrets and ConfigMaps of one namespace, each read once."""

    kube: Reads
    namespace: str
    seen: dict[tuple[str, str], Held | None] = field(default_factory=dict)

    async def find(self, kind: type[Secret | ConfigMap], name: str, told: str) -> Held | None:
        """Return what an object holds, or None when there is none."""
        key = (kind.resource.plural, name)
        if key not in self.seen:
            self.seen[key] = await self._read(kind, name, told)
        return self.seen[key]

    async def _read(self, kind: type[Secret | ConfigMap], name: str, told: str) -> Held | None:
        try:
            found = await self.kube.get(kind, name, namespace=self.namespace)
        except errors.NotFound:
            return None
        except errors.Forbidden as error:
            # The right to read what a Pod refers to follows its binding, on a real cluster a moment later.
            raise Unresolved(f"{told}: the agent may not read it") from error
        return found.data


async def _of_whole(source: EnvFromSource, objects: _Objects) -> dict[str, str]:
    """Return the variables of an object that is taken whole."""
    found: dict[str, str] = {}
    for kind, ref in ((Secret, source.secret_ref), (ConfigMap, source.config_map_ref)):
        if ref is None:
            continue
        told = f"envFrom {_word(kind)} {objects.namespace}/{ref.name}"
        held = await objects.find(kind, ref.name, told)
        if held is None and not ref.optional:
            raise Unresolved(f"{told}: not found")
        for key, value in (held or {}).items():
            found[f"{source.prefix}{key}"] = _text(value, f"{told} key {key}")
    return {name: value for name, value in found.items() if _is_usable(name)}


def _is_usable(name: str) -> bool:
    if _NAME.fullmatch(name):
        return True
    logger.warning("A key that can be no variable is left out", key=name)
    return False


async def _of_variable(variable: EnvVar, pod: Pod, place: Place, objects: _Objects) -> str | None:
    """Return the value of one variable; None to leave it out."""
    told = f"env {variable.name}"
    if not _NAME.fullmatch(variable.name):
        raise Unresolved(f"{told}: a variable of a guest cannot be called so")
    source = variable.value_from
    if source is None:
        return _text(variable.value, told)
    if source.field_ref is not None:
        return of_field(source.field_ref.field_path, pod, place, told=told)
    if source.resource_field_ref is not None:
        return of_resource(source.resource_field_ref, pod, place, told=told)
    return await _of_key(source, objects, told)


async def _of_key(source: EnvVarSource, objects: _Objects, told: str) -> str | None:
    kind: type[Secret | ConfigMap] = Secret
    ref: KeySelector | None = source.secret_key_ref
    if ref is None:
        kind, ref = ConfigMap, source.config_map_key_ref
    if ref is None:
        raise Unresolved(f"{told}: its value comes from a source that guests cannot have")
    what = f"{told}: {_word(kind)} {ref.name}"
    held = await objects.find(kind, ref.name, what)
    if held is not None and ref.key in held:
        return _text(held[ref.key], f"{what} key {ref.key}")
    if ref.optional:
        return None
    raise Unresolved(f"{what} not found" if held is None else f"{what} missing key {ref.key}")


def _word(kind: type[Secret | ConfigMap]) -> str:
    return kind.resource.kind.lower()


def _text(value: str | bytes, told: str) -> str:
    """Return a value that a file of lines can hold; the error does not show it."""
    try:
        text = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise Unresolved(f"{told} is not text") from None
    if "\0" in text:
        raise Unresolved(f"{told} holds a zero byte, which no variable can")
    return text
