"""All built-in kinds, in the order of their groups, and the catalog of them."""

from __future__ import annotations

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.kinds import (
    admission_registration,
    apps,
    batch,
    core,
    events,
    networking,
    nodes,
    pods,
    rbac,
    small_groups,
    storage,
    virtual,
)
from bramley.apiserver.registry import crds
from bramley.apiserver.registry.resources import Catalog, ServedResource

# The order of kube-apiserver's discovery.
_GROUPS = (
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    networking.GROUP,
    "policy",
    rbac.GROUP,
    storage.GROUP,
    admission_registration.GROUP,
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    virtual.METRICS_GROUP,
)
_DEFAULT_SETTINGS = Settings()


def catalog(settings: Settings = _DEFAULT_SETTINGS) -> Catalog:
    """Return a catalog of the built-in kinds that follows CustomResourceDefinitions."""
    return Catalog(builtin(settings), from_crd=crds.served_resources)


def builtin(settings: Settings = _DEFAULT_SETTINGS) -> tuple[ServedResource, ...]:
    """Return what is served without any CustomResourceDefinition."""
    served = (
        *core.KINDS,
        *nodes.KINDS,
        pods.kind_of(settings),
        *events.KINDS,
        *networking.KINDS,
        *storage.KINDS,
        *apps.KINDS,
        *batch.KINDS,
        *rbac.KINDS,
        *admission_registration.KINDS,
        *small_groups.KINDS,
        *virtual.KINDS,
    )
    return tuple(sorted(served, key=lambda each: _GROUPS.index(each.group)))
