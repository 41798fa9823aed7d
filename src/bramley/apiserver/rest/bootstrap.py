"""What every cluster has from its first moment: its own namespaces, two priority classes, roles, and the kinds already defined."""

from __future__ import annotations

from bramley.apiserver.auth import bootstrap as policy
from bramley.apiserver.resources import Json, ServedResource
from bramley.apiserver.rest import terminating
from bramley.apiserver.rest.creating import creation
from bramley.apiserver.rest.server import CRDS, Server, decoded
from bramley.apiserver.rest.writing import write
from bramley.apiserver.status import ApiError
from bramley.apiserver.store.records import Key

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def install_definitions(server: Server) -> None:
    """Serve the kinds whose definitions are in the store."""
    for record in server.store.list(CRDS):
        server.catalog.install(decoded(record))


async def prepare(server: Server) -> None:
    """Create what is missing, and go on with what a stop cut short."""
    for name in NAMESPACES:
        await _ensure(server, ("", "namespaces"), {"metadata": {"name": name}})
    for name, value in PRIORITIES.items():
        body: Json = {"metadata": {"name": name}, "value": value}
        await _ensure(server, ("scheduling.k8s.io", "priorityclasses"), body)
    await policy.ensure(server.store, server.clock, server.uid)
    await terminating.resume(server)


async def _ensure(server: Server, which: tuple[str, str], body: Json) -> None:
    resource = _resource(server, *which)
    key = Key(resource.stored_name, "", body["metadata"]["name"])
    if server.store.get(key) is not None:
        return
    whole = {"kind": resource.kind, "apiVersion": resource.api_version, **body}
    try:
        await write(server, resource, key, creation(server, resource, whole))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def _resource(server: Server, group: str, plural: str) -> ServedResource:
    found = server.catalog.find(group, "v1", plural)
    if found is None:
        raise RuntimeError(f"the catalog does not serve {plural}")
    return found
