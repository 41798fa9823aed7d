"""Extract the field names and types of the built-in kinds from a real server's OpenAPI documents.

`python -m tools.shapes KUBECTL KUBECONFIG` asks the server that the kubeconfig names and rewrites the packaged data file.
Types are written as Go prints them, because the refusals of a wrong type name them so; `!` marks a field that is always shown,
`?` a text, number or truth value that is not shown when it is empty, zero or false, because Go cannot distinguish it from absent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bramley.apiserver.fields import structs

OUT = Path(__file__).parent.parent / "src/bramley/apiserver/kinds/shapes.json"
REFERENCE = "#/components/schemas/"
GROUPS = {
    "api/v1": (
        "Binding",
        "ConfigMap",
        "Endpoints",
        "Event",
        "Eviction",
        "LimitRange",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodTemplate",
        "ReplicationController",
        "ResourceQuota",
        "Scale",
        "Secret",
        "Service",
        "ServiceAccount",
        "TokenRequest",
    ),
    "apis/admissionregistration.k8s.io/v1": (
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    ),
    "apis/apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
    "apis/apps/v1": (
        "ControllerRevision",
        "DaemonSet",
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
    ),
    "apis/authentication.k8s.io/v1": ("SelfSubjectReview", "TokenReview"),
    "apis/authorization.k8s.io/v1": (
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
    ),
    "apis/autoscaling/v1": ("HorizontalPodAutoscaler",),
    "apis/autoscaling/v2": ("HorizontalPodAutoscaler",),
    "apis/batch/v1": ("CronJob", "Job"),
    "apis/coordination.k8s.io/v1": ("Lease",),
    "apis/discovery.k8s.io/v1": ("EndpointSlice",),
    "apis/events.k8s.io/v1": ("Event",),
    "apis/networking.k8s.io/v1": ("Ingress", "IngressClass", "NetworkPolicy"),
    "apis/node.k8s.io/v1": ("RuntimeClass",),
    "apis/policy/v1": ("PodDisruptionBudget",),
    "apis/rbac.authorization.k8s.io/v1": (
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ),
    "apis/scheduling.k8s.io/v1": ("PriorityClass",),
    "apis/storage.k8s.io/v1": (
        "CSIDriver",
        "CSINode",
        "CSIStorageCapacity",
        "StorageClass",
        "VolumeAttachment",
    ),
}
# Groups whose structs share a short name with one of another group.
QUALIFIED = frozenset({"admissionregistration", "autoscaling", "discovery", "events", "storage"})
LEAVES = {
    "resource.Quantity": "resource.Quantity",
    "intstr.IntOrString": "intstr.IntOrString",
    "v1.Time": "v1.Time",
    "v1.MicroTime": "v1.MicroTime",
    "v1.FieldsV1": "any",
    "v1.JSON": "any",
    "v1.JSONSchemaPropsOrArray": "any",
    "v1.JSONSchemaPropsOrBool": "any",
    "v1.JSONSchemaPropsOrStringArray": "any",
    "runtime.RawExtension": "any",
}
NUMBERS = {"int32": "int32", "int64": "int64", "double": "float64"}
SCALARS = frozenset({"string", "bool", "int32", "int64"})


def short(name: str) -> str:
    """Return `v1.Pod` for the long name of a schema; two groups may share a short name, so these get their group."""
    parts = name.split(".")
    if parts[-3] in QUALIFIED:
        return ".".join(parts[-3:])
    return ".".join(parts[-2:])


def type_of(schema: dict[str, Any], referenced: set[str]) -> str:
    """Return a schema's type as Go names it, and note the structs that it refers to."""
    reference = schema.get("$ref") or next((each["$ref"] for each in schema.get("allOf", ())), None)
    if reference:
        long = reference.removeprefix(REFERENCE)
        if short(long) not in LEAVES:
            referenced.add(long)
        return LEAVES.get(short(long), short(long))
    match schema.get("type"):
        case "array":
            return f"[]{type_of(schema['items'], referenced)}"
        case "object" if "additionalProperties" in schema:
            return f"map[string]{type_of(schema['additionalProperties'], referenced)}"
        case "string":
            return "[]uint8" if schema.get("format") == "byte" else "string"
        case "integer" | "number":
            return NUMBERS[schema.get("format", "int64")]
        case "boolean":
            return "bool"
    return "any"


def fields_of(schema: dict[str, Any], referenced: set[str], left_out: set[str]) -> dict[str, str]:
    """Return the fields of a struct with their types and marks."""
    marks = dict.fromkeys(left_out, "?") | dict.fromkeys(schema.get("required", ()), "!")
    return {
        name: type_of(each, referenced) + marks.get(name, "")
        for name, each in sorted(schema.get("properties", {}).items())
    }


def left_out_at_zero(name: str) -> set[str]:
    """Return the scalars of a struct that Go leaves out when they are zero: no pointers, and `omitempty`."""
    *_, group, version, kind = name.split(".")
    go_name = f"{group}/{version}.{kind}"
    if not structs.is_struct(go_name):
        return set()
    fields = structs.struct(go_name).by_name.values()
    return {each.name for each in fields if each.is_omitted_empty and each.type in SCALARS}


def cut(schemas: dict[str, Any], roots: set[str]) -> dict[str, dict[str, str]]:
    """Return the roots and every struct that they reach."""
    shapes: dict[str, dict[str, str]] = {}
    long_names: dict[str, str] = {}
    waiting = set(roots)
    while waiting:
        name = waiting.pop()
        if long_names.setdefault(short(name), name) != name:
            raise SystemExit(
                f"{name} and {long_names[short(name)]} share a short name: add a group to QUALIFIED"
            )
        referenced: set[str] = set()
        shapes[short(name)] = fields_of(schemas[name], referenced, left_out_at_zero(name))
        waiting |= {each for each in referenced if each not in long_names.values()}
    return dict(sorted(shapes.items()))


def main() -> None:
    """Write the data file."""
    kubectl, kubeconfig = sys.argv[1:]
    schemas: dict[str, Any] = {}
    roots: set[str] = set()
    for path, kinds in GROUPS.items():
        command = [kubectl, "--kubeconfig", kubeconfig, "get", "--raw", f"/openapi/v3/{path}"]
        document = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        here = document["components"]["schemas"]
        schemas |= here
        roots |= {name for name in here if name.split(".")[-1] in kinds and "io.k8s.api" in name}
    lines = [f"  {json.dumps(name)}: {json.dumps(of)}" for name, of in cut(schemas, roots).items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
