"""Volumes, claims, and the group storage.k8s.io: stored and defaulted; nothing here binds or attaches volumes."""

from __future__ import annotations

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds.definitions import go_struct, initial_status, kind, set_defaults
from bramley.apiserver.registry.resources import Json, Strategy
from bramley.base.errors import Cause

GROUP = "storage.k8s.io"
_NO_VOLUME = frozenset(
    {
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    }
)
_CLAIM_MAY_NOT_CHANGE = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
_DRIVER: Json = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
    "volumeLifecycleModes": ["Persistent"],
}


def complete_volume(new: Json) -> None:
    """Give a new PersistentVolume its first status and its protection finalizer."""
    since = new["metadata"]["creationTimestamp"]
    new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": since}
    _add_finalizer(new, "kubernetes.io/pv-protection")


def default_volume(new: Json) -> None:
    """Set the defaults of a PersistentVolume."""
    spec_in = new.get("spec", {})
    spec = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem", **spec_in}
    if "hostPath" in spec:
        spec["hostPath"] = {"type": "", **spec["hostPath"]}
    new["spec"] = spec


def check_volume(new: Json) -> list[Cause]:
    """Return what is wrong with a PersistentVolume."""
    spec = new["spec"]
    errors = causes.missing(spec, ("accessModes", "capacity"), "spec")
    if list(spec.get("capacity", {})) != ["storage"]:
        errors.append(causes.unsupported("spec.capacity", spec.get("capacity"), ("storage",)))
    if not spec.keys() - _NO_VOLUME:
        errors.append(causes.required("spec", "must specify a volume type"))
    return errors


def complete_claim(new: Json) -> None:
    """Give a new PersistentVolumeClaim its first status and its protection finalizer."""
    new["status"] = {"phase": "Pending"}
    _add_finalizer(new, "kubernetes.io/pvc-protection")


def default_claim(new: Json) -> None:
    """Set the defaults of a PersistentVolumeClaim."""
    new["spec"] = {"volumeMode": "Filesystem", "resources": {}, **new.get("spec", {})}
    new["status"] = {"phase": "Pending", **new.get("status", {})}


def check_claim(new: Json) -> list[Cause]:
    """Return what is wrong with a PersistentVolumeClaim."""
    spec = new["spec"]
    errors = []
    if not spec.get("accessModes"):
        detail = "at least 1 access mode is required"
        errors.append(causes.required("spec.accessModes", detail))
    if "storage" not in spec["resources"].get("requests", {}):
        errors.append(causes.required("spec.resources[storage]"))
    return errors


def check_claim_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a PersistentVolumeClaim."""
    free = {"volumeName", "resources", "volumeAttributesClassName"}
    before, after = old["spec"], new["spec"]
    if any(before.get(key) != after.get(key) for key in (before.keys() | after.keys()) - free):
        return [causes.forbidden("spec", _CLAIM_MAY_NOT_CHANGE)]
    return []


def check_class_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a StorageClass."""
    return [
        causes.forbidden(field, f"updates to {field} are forbidden.")
        for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        if new.get(field) != old.get(field)
    ]


def default_node(new: Json) -> None:
    """Set the drivers of a CSINode to null if there are none."""
    drivers = new.get("spec", {}).get("drivers")
    shown = [{**each, "topologyKeys": each.get("topologyKeys")} for each in drivers or []]
    new["spec"] = {"drivers": shown if drivers is not None else None}


def check_node(new: Json) -> list[Cause]:
    """Return what is wrong with a CSINode."""
    return [
        cause
        for index, each in enumerate(new["spec"]["drivers"] or [])
        for cause in causes.missing(each, ("name", "nodeID"), f"spec.drivers[{index}]")
    ]


def check_attachment(new: Json) -> list[Cause]:
    """Return what is wrong with a VolumeAttachment."""
    return causes.missing(new.get("spec", {}), ("attacher", "nodeName"), "spec")


def check_attachment_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a VolumeAttachment."""
    spec = new.get("spec", {})
    if spec == old.get("spec", {}):
        return []
    source = go_struct(
        PersistentVolumeName=spec.get("source", {}).get("persistentVolumeName"),
        InlineVolumeSpec=spec.get("source", {}).get("inlineVolumeSpec"),
    )
    attacher, node = (causes.text(spec.get(field)) for field in ("attacher", "nodeName"))
    shown = f'{{"Attacher":{attacher},"Source":{source},"NodeName":{node}}}'
    return [Cause("spec", "FieldValueInvalid", f"Invalid value: {shown}: field is immutable")]


def check_capacity(new: Json) -> list[Cause]:
    """Return what is wrong with a CSIStorageCapacity."""
    name = new["storageClassName"]
    return causes.invalid_each("storageClassName", name, names.subdomain(name))


def _add_finalizer(new: Json, finalizer: str) -> None:
    finalizers = new["metadata"].get("finalizers", [])
    if finalizer not in finalizers:
        new["metadata"]["finalizers"] = [*finalizers, finalizer]


KINDS = (
    kind(
        "PersistentVolume",
        namespaced=False,
        short_names=("pv",),
        has_status=True,
        strategy=Strategy(
            prepare_for_create=complete_volume,
            default=default_volume,
            validate=check_volume,
            returns_deleted=True,
        ),
    ),
    kind(
        "PersistentVolumeClaim",
        short_names=("pvc",),
        has_status=True,
        strategy=Strategy(
            prepare_for_create=complete_claim,
            default=default_claim,
            validate=check_claim,
            validate_update=check_claim_change,
            returns_deleted=True,
        ),
    ),
    kind(
        "CSIDriver",
        group=GROUP,
        namespaced=False,
        strategy=Strategy(
            shape="storage.v1.CSIDriver",
            default=lambda new: new.update(spec={**_DRIVER, **new.get("spec", {})}),
            returns_deleted=True,
            unconditional_update=False,
        ),
    ),
    kind(
        "CSINode",
        group=GROUP,
        namespaced=False,
        strategy=Strategy(
            shape="storage.v1.CSINode",
            default=default_node,
            validate=check_node,
            returns_deleted=True,
            unconditional_update=False,
        ),
    ),
    kind(
        "CSIStorageCapacity",
        group=GROUP,
        plural="csistoragecapacities",
        strategy=Strategy(
            shape="storage.v1.CSIStorageCapacity",
            default=set_defaults(storageClassName=""),
            validate=check_capacity,
            unconditional_update=False,
        ),
    ),
    kind(
        "StorageClass",
        group=GROUP,
        plural="storageclasses",
        namespaced=False,
        short_names=("sc",),
        strategy=Strategy(
            shape="storage.v1.StorageClass",
            default=set_defaults(
                reclaimPolicy="Delete", volumeBindingMode="Immediate", provisioner=""
            ),
            validate=lambda new: [] if new["provisioner"] else [causes.required("provisioner")],
            validate_update=check_class_change,
            returns_deleted=True,
        ),
    ),
    kind(
        "VolumeAttachment",
        group=GROUP,
        namespaced=False,
        has_status=True,
        strategy=Strategy(
            shape="storage.v1.VolumeAttachment",
            prepare_for_create=initial_status(attached=False),
            validate=check_attachment,
            validate_update=check_attachment_change,
            returns_deleted=True,
            unconditional_update=False,
        ),
    ),
)
