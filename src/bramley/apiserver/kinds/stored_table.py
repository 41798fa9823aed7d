"""The kinds that nothing here acts on: stored, filled in and served, because clients ask for them. One entry each."""

from __future__ import annotations

from bramley.apiserver.kinds import networking, registrations, small, storage
from bramley.apiserver.kinds.entries import kind
from bramley.apiserver.registry.resources import Rules, ServedResource

ADMISSION, AUTOSCALING, DISCOVERY = (
    "admissionregistration.k8s.io",
    "autoscaling",
    "discovery.k8s.io",
)
NETWORKING, NODE, STORAGE = "networking.k8s.io", "node.k8s.io", "storage.k8s.io"


def builtin() -> tuple[ServedResource, ...]:
    """Return what is served of these."""
    return (
        *_core(),
        *_volumes(),
        *_storage(),
        *_networking(),
        *_webhooks(),
        *_policies(),
        _scaler(),
        _runtime(),
    )


def _core() -> tuple[ServedResource, ...]:
    return (
        kind(
            "Endpoints",
            plural="endpoints",
            short_names=("ep",),
            rules=Rules(
                shape="v1.Endpoints",
                default=networking.default_endpoints,
                check=networking.check_endpoints,
                create_on_update=True,
                warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
            ),
        ),
        kind(
            "LimitRange",
            short_names=("limits",),
            rules=Rules(shape="v1.LimitRange", default=small.default_limits, create_on_update=True),
        ),
        kind(
            "ResourceQuota",
            short_names=("quota",),
            has_status=True,
            rules=Rules(
                shape="v1.ResourceQuota",
                default=small.default_quota,
                check=small.check_quota,
                returns_deleted=True,
            ),
        ),
    )


def _volumes() -> tuple[ServedResource, ...]:
    return (
        kind(
            "PersistentVolume",
            namespaced=False,
            short_names=("pv",),
            has_status=True,
            rules=Rules(
                shape="v1.PersistentVolume",
                complete=storage.complete_volume,
                default=storage.default_volume,
                check=storage.check_volume,
                returns_deleted=True,
            ),
        ),
        kind(
            "PersistentVolumeClaim",
            short_names=("pvc",),
            has_status=True,
            rules=Rules(
                shape="v1.PersistentVolumeClaim",
                complete=storage.complete_claim,
                default=storage.default_claim,
                check=storage.check_claim,
                transition=storage.check_claim_change,
                returns_deleted=True,
            ),
        ),
    )


def _storage() -> tuple[ServedResource, ...]:
    return (*_drivers(), _storage_class(), _attachment())


def _drivers() -> tuple[ServedResource, ...]:
    return (
        kind(
            "CSIDriver",
            group=STORAGE,
            namespaced=False,
            rules=Rules(
                shape="storage.v1.CSIDriver",
                default=storage.default_driver,
                returns_deleted=True,
                unconditional_update=False,
            ),
        ),
        kind(
            "CSINode",
            group=STORAGE,
            namespaced=False,
            rules=Rules(
                shape="storage.v1.CSINode",
                default=storage.default_node,
                check=storage.check_node,
                returns_deleted=True,
                unconditional_update=False,
            ),
        ),
        kind(
            "CSIStorageCapacity",
            group=STORAGE,
            plural="csistoragecapacities",
            rules=Rules(
                shape="storage.v1.CSIStorageCapacity",
                default=storage.default_capacity,
                check=storage.check_capacity,
                unconditional_update=False,
            ),
        ),
    )


def _storage_class() -> ServedResource:
    return kind(
        "StorageClass",
        group=STORAGE,
        plural="storageclasses",
        namespaced=False,
        short_names=("sc",),
        rules=Rules(
            shape="storage.v1.StorageClass",
            default=storage.default_class,
            check=storage.check_class,
            transition=storage.check_class_change,
            returns_deleted=True,
        ),
    )


def _attachment() -> ServedResource:
    return kind(
        "VolumeAttachment",
        group=STORAGE,
        namespaced=False,
        has_status=True,
        rules=Rules(
            shape="storage.v1.VolumeAttachment",
            complete=storage.complete_attachment,
            check=storage.check_attachment,
            transition=storage.check_attachment_change,
            returns_deleted=True,
            unconditional_update=False,
        ),
    )


def _networking() -> tuple[ServedResource, ...]:
    return (_slice(), *_ingresses(), _network_policy())


def _slice() -> ServedResource:
    return kind(
        "EndpointSlice",
        group=DISCOVERY,
        rules=Rules(
            shape="discovery.v1.EndpointSlice",
            default=networking.default_slice,
            check=networking.check_slice,
            transition=networking.check_slice_change,
            counts_generation=True,
        ),
    )


def _ingresses() -> tuple[ServedResource, ...]:
    return (
        kind(
            "Ingress",
            group=NETWORKING,
            plural="ingresses",
            short_names=("ing",),
            has_status=True,
            rules=Rules(
                shape="v1.Ingress",
                complete=networking.complete_ingress,
                check=networking.check_ingress,
                counts_generation=True,
            ),
        ),
        kind(
            "IngressClass",
            group=NETWORKING,
            plural="ingressclasses",
            namespaced=False,
            rules=Rules(shape="v1.IngressClass", counts_generation=True),
        ),
    )


def _network_policy() -> ServedResource:
    return kind(
        "NetworkPolicy",
        group=NETWORKING,
        plural="networkpolicies",
        short_names=("netpol",),
        rules=Rules(
            shape="v1.NetworkPolicy",
            default=networking.default_policy,
            counts_generation=True,
        ),
    )


def _webhooks() -> tuple[ServedResource, ...]:
    return tuple(
        kind(
            f"{sort}WebhookConfiguration",
            group=ADMISSION,
            namespaced=False,
            categories=("api-extensions",),
            rules=Rules(
                shape=f"admissionregistration.v1.{sort}WebhookConfiguration",
                default=registrations.default_webhooks,
                check=registrations.check_webhooks,
                counts_generation=True,
                unconditional_update=False,
            ),
        )
        for sort in ("Mutating", "Validating")
    )


def _policies() -> tuple[ServedResource, ...]:
    return (
        kind(
            "ValidatingAdmissionPolicy",
            group=ADMISSION,
            plural="validatingadmissionpolicies",
            namespaced=False,
            categories=("api-extensions",),
            has_status=True,
            rules=Rules(
                shape="admissionregistration.v1.ValidatingAdmissionPolicy",
                complete=registrations.complete_policy,
                default=registrations.default_policy,
                check=registrations.check_policy,
                counts_generation=True,
                unconditional_update=False,
            ),
        ),
        kind(
            "ValidatingAdmissionPolicyBinding",
            group=ADMISSION,
            namespaced=False,
            categories=("api-extensions",),
            rules=Rules(
                shape="admissionregistration.v1.ValidatingAdmissionPolicyBinding",
                default=registrations.default_binding,
                check=registrations.check_binding,
                counts_generation=True,
                unconditional_update=False,
            ),
        ),
    )


def _scaler() -> ServedResource:
    # Version 2 only: version 1 is a poorer view of the same objects, and nothing here scales by them.
    return kind(
        "HorizontalPodAutoscaler",
        group=AUTOSCALING,
        version="v2",
        short_names=("hpa",),
        categories=("all",),
        has_status=True,
        rules=Rules(
            shape="autoscaling.v2.HorizontalPodAutoscaler",
            complete=networking.complete_scaler,
            default=networking.default_scaler,
            check=networking.check_scaler,
        ),
    )


def _runtime() -> ServedResource:
    return kind(
        "RuntimeClass",
        group=NODE,
        plural="runtimeclasses",
        namespaced=False,
        rules=Rules(
            shape="v1.RuntimeClass",
            check=small.check_runtime,
            transition=small.check_runtime_change,
            create_on_update=True,
            unconditional_update=False,
        ),
    )
