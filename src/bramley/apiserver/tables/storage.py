"""The rows of volumes, claims, storage classes and CSI drivers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from bramley.apiserver.tables.cells import (
    UNSET,
    Cell,
    Json,
    Row,
    age,
    at,
    computed,
    count,
    find,
    is_terminating,
    joined,
    name,
    row,
    text_at,
)

_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULTS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(path: str) -> Cell:
    def cell(shown: Json, _now: datetime) -> str:
        given = find(shown, path) or ()
        return ",".join(short for mode, short in _MODES.items() if mode in given)

    return cell


def _phase(shown: Json) -> str:
    return "Terminating" if is_terminating(shown) else find(shown, "status.phase") or ""


def _class(shown: Json) -> str:
    annotations = shown["metadata"].get("annotations") or {}
    return annotations.get(_CLASS) or find(shown, "spec.storageClassName") or ""


def _claim(volume: Json) -> str:
    claim = find(volume, "spec.claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _if_bound(cell: Cell) -> Cell:
    return lambda claim, now: cell(claim, now) if find(claim, "spec.volumeName") else ""


def _class_name(storage_class: Json) -> str:
    annotations = storage_class["metadata"].get("annotations") or {}
    is_default = any(annotations.get(each) == "true" for each in _DEFAULTS)
    return str(storage_class["metadata"].get("name", "")) + (" (default)" if is_default else "")


def _audiences(driver: Json) -> str:
    given = find(driver, "spec.tokenRequests")
    return UNSET if given is None else ",".join(each.get("audience", "") for each in given)


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "persistentvolumes": row(
            name,
            at("spec.capacity.storage", "0"),
            _modes("spec.accessModes"),
            at("spec.persistentVolumeReclaimPolicy"),
            computed(_phase),
            computed(_claim),
            computed(_class),
            text_at("spec.volumeAttributesClassName", UNSET),
            at("status.reason"),
            age,
            text_at("spec.volumeMode", UNSET),
        ),
        "persistentvolumeclaims": row(
            name,
            computed(_phase),
            at("spec.volumeName"),
            _if_bound(at("status.capacity.storage", "0")),
            _if_bound(_modes("status.accessModes")),
            computed(_class),
            text_at("spec.volumeAttributesClassName", UNSET),
            age,
            text_at("spec.volumeMode", UNSET),
        ),
        "storageclasses.storage.k8s.io": row(
            computed(_class_name),
            at("provisioner"),
            at("reclaimPolicy", "Delete"),
            at("volumeBindingMode", "Immediate"),
            at("allowVolumeExpansion", absent=False),
            age,
        ),
        "volumeattributesclasses.storage.k8s.io": row(name, at("driverName"), age),
        "volumeattachments.storage.k8s.io": row(
            name,
            at("spec.attacher"),
            at("spec.source.persistentVolumeName"),
            at("spec.nodeName"),
            at("status.attached", absent=False),
            age,
        ),
        "csinodes.storage.k8s.io": row(name, count("spec.drivers"), age),
        "csidrivers.storage.k8s.io": row(
            name,
            at("spec.attachRequired", absent=True),
            at("spec.podInfoOnMount", absent=False),
            at("spec.storageCapacity", absent=False),
            computed(_audiences),
            at("spec.requiresRepublish", absent=False),
            joined("spec.volumeLifecycleModes", "<none>"),
            age,
        ),
    }
)
