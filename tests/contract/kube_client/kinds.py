"""The custom kind of this suite: small, and with every feature that a definition can have."""

from __future__ import annotations

from typing import Any, ClassVar

from bramley.api.meta import Fields, Object, ObjectMeta, Resource
from bramley.api.pod import Container, Pod, PodSpec

GROUP = "contract.bramley.dev"


class WidgetSpec(Fields, frozen=True, kw_only=True):
    size: int
    mode: str = ""
    replicas: int = 0
    # The definition allows more than this type does, so that an object can be stored which does not decode.
    extra: dict[str, str] = {}


class WidgetStatus(Fields, frozen=True, kw_only=True):
    replicas: int = 0
    selector: str = ""
    phase: str = ""


class Widget(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(GROUP, "v1", "Widget", "widgets", namespaced=True)

    spec: WidgetSpec
    status: WidgetStatus = WidgetStatus()


SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 100},
        "mode": {"type": "string", "enum": ["slow", "fast"], "default": "slow"},
        "replicas": {"type": "integer", "minimum": 0},
        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}

STATUS = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
        "phase": {"type": "string"},
    },
}

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "selectableFields": [{"jsonPath": ".spec.mode"}],
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {"spec": SPEC, "status": STATUS},
                    }
                },
            }
        ],
    },
}


def a_pod(name: str, namespace: str, *, node: str) -> Pod:
    spec = PodSpec(containers=[Container(name="vm", image="x")], node_name=node)
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)
