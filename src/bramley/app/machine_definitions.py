"""The definitions that `bramley machines` needs: an older one would drop what the controllers store, without an error."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec

from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.cluster_api import Cluster, Machine
from bramley.api.mac_host import MacHost, MacHostSpec
from bramley.api.mac_status import MacStatus
from bramley.api.meta import Fields, Object
from bramley.api.names import groups
from bramley.api.runner_pool import RunnerPool
from bramley.api.scaleway_machine import (
    ScalewayAppleSiliconMachine,
    ScalewayAppleSiliconMachineSpec,
    ScalewayAppleSiliconMachineStatus,
)
from bramley.api.tuist_cluster import TuistCluster
from bramley.base import errors
from bramley.kube.client import Client

_INSTALL = "install them with: bramley crds | kubectl apply -f -"
_CORE = "install Cluster API's core manager, or unset the credentials of Scaleway to reconcile MacHosts only"
_OWNED: tuple[type[Object], ...] = (RunnerPool, MacHost)
_RENTED: tuple[type[Object], ...] = (ScalewayAppleSiliconMachine, TuistCluster)
_PARTS: dict[type[Object], dict[str, type[Fields]]] = {
    MacHost: {"spec": MacHostSpec, "status": MacStatus},
    ScalewayAppleSiliconMachine: {
        "spec": ScalewayAppleSiliconMachineSpec,
        "status": ScalewayAppleSiliconMachineStatus,
    },
}


async def require(kube: Client, *, is_rented: bool) -> None:
    """Raise if a kind is not served, or its definition lacks a field; those of rented Macs only if there are any."""
    for kind in (*_OWNED, *(_RENTED if is_rented else ())):
        await _require_served(kube, kind, _INSTALL)
    for kind in (Cluster, Machine) if is_rented else ():
        await _require_served(kube, kind, _CORE)
    for kind, parts in _PARTS.items():
        if is_rented or kind in _OWNED:
            await _require_fields(kube, kind, parts)


async def _require_served(kube: Client, kind: type[Object], remedy: str) -> None:
    try:
        async with aclosing(kube.pages(kind, page_size=1)) as pages:
            await anext(pages)
    except errors.NotFound as error:
        name = f"{kind.resource.plural}.{kind.resource.group}"
        raise errors.BadConfiguration(f"the server has no {name}; {remedy}") from error


async def _require_fields(kube: Client, kind: type[Object], parts: dict[str, type[Fields]]) -> None:
    name = f"{kind.resource.plural}.{kind.resource.group}"
    try:
        definition = await kube.read_wire(CustomResourceDefinition.resource.path(name=name))
    except errors.Forbidden:
        # Reading definitions is not necessary for anything else.
        return
    served = _properties(definition)
    for part, fields in parts.items():
        known = served.get(part, {}).get("properties", {})
        for field in msgspec.structs.fields(fields):
            if field.encode_name not in known:
                raise errors.BadConfiguration(
                    f"the server's definition {name} is older and lacks {part}.{field.encode_name}; {_INSTALL}"
                )


def _properties(definition: dict[str, Any]) -> dict[str, Any]:
    for version in definition["spec"]["versions"]:
        if version["name"] == groups.VERSION:
            found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
            return found
    return {}
