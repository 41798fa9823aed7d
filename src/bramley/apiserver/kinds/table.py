"""The built-in kinds that are served, one entry each, and the catalog made of them."""

from __future__ import annotations

import dataclasses
from functools import partial

from bramley.apiserver.apimachinery import names
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.kinds import (
    configs,
    events,
    namespaces,
    nodes,
    pod_changes,
    pod_defaults,
    pods,
    reviews,
    services,
    small,
    stored_table,
    usages,
    workload_table,
)
from bramley.apiserver.kinds.entries import kind
from bramley.apiserver.registry import crds
from bramley.apiserver.registry.resources import (
    VERBS,
    Catalog,
    Rules,
    SelectableField,
    ServedResource,
)

RBAC = "rbac.authorization.k8s.io"
# In this order a real server lists them.
_GROUPS = (
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    RBAC,
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    usages.GROUP,
)
_USUAL = Settings()


def catalog(settings: Settings = _USUAL) -> Catalog:
    """Return a catalog of the built-in kinds that follows CustomResourceDefinitions."""
    return Catalog(builtin(settings), from_crd=crds.served)


def builtin(settings: Settings = _USUAL) -> tuple[ServedResource, ...]:
    """Return what is served without any CustomResourceDefinition."""
    own = (*_core(settings), *_events(), *reviews.reviews(), *_rbac(), *_others())
    served = (*own, *workload_table.builtin(), *stored_table.builtin(), *usages.usages())
    return tuple(sorted(served, key=lambda each: _GROUPS.index(each.group)))


def _core(settings: Settings) -> tuple[ServedResource, ...]:
    return (
        kind(
            "ConfigMap",
            short_names=("cm",),
            rules=Rules(
                shape="v1.ConfigMap",
                check=configs.check_config_map,
                transition=configs.check_config_map_change,
            ),
        ),
        _binding(),
        _namespace(),
        _node(),
        _pod(settings),
        kind(
            "Secret",
            selectable=(SelectableField("type", ("type",)),),
            rules=Rules(
                shape="v1.Secret",
                default=configs.default_secret,
                check=configs.check_secret,
                transition=configs.check_secret_change,
            ),
        ),
        kind(
            "ServiceAccount",
            short_names=("sa",),
            rules=Rules(shape="v1.ServiceAccount", returns_deleted=True),
        ),
        _service(),
    )


def _binding() -> ServedResource:
    return kind("Binding", verbs=("create",), is_virtual=True, rules=Rules(shape="v1.Binding"))


def _namespace() -> ServedResource:
    return kind(
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        has_status=True,
        selectable=(SelectableField("status.phase", ("status", "phase")),),
        verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
        rules=Rules(
            shape="v1.Namespace",
            name=names.label,
            complete=namespaces.complete,
            default=namespaces.default,
            keep=namespaces.keep,
            is_held=namespaces.is_held,
            returns_deleted=True,
        ),
    )


def _node() -> ServedResource:
    return kind(
        "Node",
        namespaced=False,
        short_names=("no",),
        has_status=True,
        selectable=(
            SelectableField("spec.unschedulable", ("spec", "unschedulable"), absent="false"),
        ),
        rules=Rules(
            shape="v1.Node",
            default=nodes.default,
            check=nodes.check,
            transition=nodes.check_change,
            check_status=nodes.check_status,
            status_on_create=True,
        ),
    )


def _pod(settings: Settings) -> ServedResource:
    return kind(
        "Pod",
        short_names=("po",),
        categories=("all",),
        has_status=True,
        selectable=pods.FIELDS,
        rules=Rules(
            shape="v1.Pod",
            complete=pod_defaults.complete,
            default=partial(pod_defaults.default, outage_toleration=settings.outage_toleration),
            keep=pod_changes.keep,
            check=pods.check,
            transition=pod_changes.check,
            check_status=pod_changes.check_status,
            counts_generation=True,
            returns_deleted=True,
            graceful=True,
        ),
    )


def _service() -> ServedResource:
    return kind(
        "Service",
        short_names=("svc",),
        categories=("all",),
        has_status=True,
        selectable=services.FIELDS,
        rules=Rules(
            shape="v1.Service",
            name=names.dns1035_label,
            complete=services.complete,
            default=services.default,
            keep=services.keep,
            check=services.check,
            transition=services.check_change,
            returns_deleted=True,
            create_on_update=True,
        ),
    )


def _events() -> tuple[ServedResource, ...]:
    core = kind(
        "Event",
        short_names=("ev",),
        selectable=events.CORE_FIELDS,
        rules=Rules(
            shape="v1.Event",
            name=names.path_segment,
            default=events.default,
            check=events.check,
            create_on_update=True,
        ),
    )
    new = ServedResource(
        group="events.k8s.io",
        version="v1",
        kind="Event",
        plural="events",
        namespaced=True,
        short_names=("ev",),
        selectable=events.NEW_FIELDS,
        is_custom=False,
        stored_name="events",
        conversion=events.Renaming(),
        rules=Rules(
            shape="events.v1.Event",
            default=events.default_new,
            check=events.check_new,
            create_on_update=True,
        ),
    )
    return core, new


def _rbac() -> tuple[ServedResource, ...]:
    role = Rules(
        shape="v1.Role",
        name=names.path_segment,
        default=small.default_role,
        check=small.check_role,
        create_on_update=True,
    )
    binding = Rules(
        shape="v1.RoleBinding",
        name=names.path_segment,
        default=small.default_binding,
        check=small.check_binding,
        transition=small.check_binding_change,
        create_on_update=True,
    )
    kinds = (("Role", role), ("RoleBinding", binding))
    return tuple(
        kind(
            f"{scope}{name}",
            group=RBAC,
            namespaced=not scope,
            rules=_shaped(rules, f"{scope}{name}"),
        )
        for scope in ("Cluster", "")
        for name, rules in kinds
    )


def _others() -> tuple[ServedResource, ...]:
    return (
        kind(
            "Lease",
            group="coordination.k8s.io",
            rules=Rules(
                shape="v1.Lease",
                default=small.default_lease,
                check=small.check_lease,
                create_on_update=True,
                unconditional_update=False,
                qualified_finalizers=False,
            ),
        ),
        kind(
            "PriorityClass",
            group="scheduling.k8s.io",
            plural="priorityclasses",
            namespaced=False,
            short_names=("pc",),
            rules=Rules(
                shape="v1.PriorityClass",
                default=small.default_priority,
                check=small.check_priority,
                transition=small.check_priority_change,
                complete=small.complete_priority,
            ),
        ),
        _definition(),
    )


def _definition() -> ServedResource:
    return kind(
        "CustomResourceDefinition",
        group="apiextensions.k8s.io",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        has_status=True,
        rules=Rules(
            shape="v1.CustomResourceDefinition",
            counts_generation=True,
            unconditional_update=False,
            qualified_finalizers=False,
        ),
    )


def _shaped(rules: Rules, kind: str) -> Rules:
    return dataclasses.replace(rules, shape=f"v1.{kind}")
