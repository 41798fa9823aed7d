"""Subresources through which one part of a running Pod may change: its ephemeral containers, and its resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as replaced
from types import MappingProxyType

from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.kinds import pods
from bramley.apiserver.registry.resources import Json, Transition
from bramley.apiserver.rest import listing, updating
from bramley.apiserver.rest.server import Server

Keep = Callable[[Json, Json], None]

_RESIZED = ("resources", "resizePolicy")


async def get(server: Server, request: Request, target: Target) -> Response:
    """Return the whole Pod."""
    return await listing.get(server, request, target)


async def put(server: Server, request: Request, target: Target) -> Response:
    """Replace the part by that of the Pod in the body."""
    return await updating.replace(server, request, _narrowed(target))


async def patch(server: Server, request: Request, target: Target) -> Response:
    """Patch the part."""
    return await updating.patch(server, request, _narrowed(target))


def keep_but_ephemeral(new: Json, old: Json) -> None:
    """Leave all of a Pod but its ephemeral containers as it is."""
    spec = dict(old["spec"])
    spec.pop("ephemeralContainers", None)
    wanted = new.get("spec", {}).get("ephemeralContainers")
    if wanted:
        spec["ephemeralContainers"] = wanted
    _keep(new, old, spec)


def keep_but_resources(new: Json, old: Json) -> None:
    """Leave all of a Pod but the resources of its containers as it is."""
    wanted = {each.get("name"): each for each in new.get("spec", {}).get("containers", [])}
    containers = [
        _resized(each, wanted.get(each["name"], each)) for each in old["spec"]["containers"]
    ]
    _keep(new, old, {**old["spec"], "containers": containers})


def _resized(container: Json, wanted: Json) -> Json:
    kept = {key: value for key, value in container.items() if key not in _RESIZED}
    return {**kept, **{key: wanted[key] for key in _RESIZED if key in wanted}}


def _keep(new: Json, old: Json, spec: Json) -> None:
    new["spec"] = spec
    version = new["metadata"].get("resourceVersion")
    new["metadata"] = {**old["metadata"], "resourceVersion": version}


_PARTS: Mapping[str, tuple[Keep, Transition]] = MappingProxyType(
    {
        "ephemeralcontainers": (keep_but_ephemeral, pods.check_ephemeral),
        "resize": (keep_but_resources, pods.check_resize),
    }
)


def _narrowed(target: Target) -> Target:
    """Return the Pod as a target on which only the part may change."""
    keep, transition = _PARTS[target.subresource]
    rules = replaced(target.resource.rules, keep=keep, transition=transition)
    return target._replace(resource=replaced(target.resource, rules=rules), subresource="")
