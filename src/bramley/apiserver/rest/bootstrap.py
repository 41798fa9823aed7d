"""Bootstrap of a cluster: its namespaces, priority classes, API Service and roles, and the stored CRDs."""

from __future__ import annotations

from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.auth import bootstrap as policy
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import admission, delete
from bramley.apiserver.rest.create import decide_create
from bramley.apiserver.rest.server import CRDS, Server, decoded
from bramley.apiserver.rest.writes import write
from bramley.apiserver.store.records import Key

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PRIORITIES = {
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}
API_SERVICE: Json = {
    "metadata": {
        "name": "kubernetes",
        "namespace": "default",
        "labels": {"component": "apiserver", "provider": "kubernetes"},
    },
    "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
}


def install_definitions(server: Server) -> None:
    """Serve the kinds of the stored CRDs."""
    for record in server.store.list(CRDS):
        delete.serve_crd(server, decoded(record))


async def prepare(server: Server) -> None:
    """Create what is missing, and continue interrupted deletions."""
    for name in NAMESPACES:
        await _ensure(server, ("", "namespaces"), {"metadata": {"name": name}})
    for name, (value, description) in PRIORITIES.items():
        body: Json = {"metadata": {"name": name}, "value": value, "description": description}
        await _ensure(server, ("scheduling.k8s.io", "priorityclasses"), body)
    # With the first address of the range.
    spec = {**API_SERVICE["spec"], "clusterIP": admission.api_server_address(server)}
    await _ensure(server, ("", "services"), {**API_SERVICE, "spec": spec})
    await policy.ensure(server.store, server.clock, server.uid)
    await delete.disable_shadowing_crds(server)
    await delete.resume_deletions(server)


async def _ensure(server: Server, which: tuple[str, str], body: Json) -> None:
    resource = _resource(server, *which)
    meta = body["metadata"]
    key = Key(resource.stored_name, meta.get("namespace", ""), meta["name"])
    if server.store.get(key) is not None:
        return
    # A damaged one is replaced, because nothing else would create it again.
    server.store.damage.quarantined.pop(key, None)
    desired = {"kind": resource.kind, "apiVersion": resource.api_version, **body}
    try:
        await write(server, resource, key, decide_create(server, resource, desired))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def _resource(server: Server, group: str, plural: str) -> ServedResource:
    resource = server.catalog.find(group, "v1", plural)
    if resource is None:
        raise RuntimeError(f"the catalog does not serve {plural}")
    return resource
