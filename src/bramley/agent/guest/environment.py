"""The variables of a guest: what a Pod writes out, and what it takes from Secrets, ConfigMaps, itself and its resources.

`envFrom` comes first and `env` wins, as everywhere in Kubernetes. Objects are read one by one and by name, because that is
all an agent may read. What cannot be had raises `Unresolved` with the name of the variable, never with a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bramley.agent.guest import references
from bramley.agent.guest.references import Place, Unresolved
from bramley.agent.pods import fields
from bramley.api.core import ConfigMap, Secret
from bramley.api.meta import K
from bramley.api.pod import EnvFromSource, EnvVar, EnvVarSource, KeySelector, Pod
from bramley.base import errors, log

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
    return not references.ADDRESSES.isdisjoint(paths)


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
        return references.of_field(source.field_ref.field_path, pod, place, told=told)
    if source.resource_field_ref is not None:
        return references.of_resource(source.resource_field_ref, pod, place, told=told)
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
