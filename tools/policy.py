"""Extract the roles and bindings that every cluster has from a real server's responses.

`python -m tools.policy FILE` reads what `kubectl get clusterroles,clusterrolebindings,roles,rolebindings -A -o json` printed for
a fresh cluster whose controllers ran, adds what our own controllers need, and rewrites the packaged data file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent.parent / "src/bramley/apiserver/auth/policy.json"
GROUP = "rbac.authorization.k8s.io"
PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}
CONTROLLERS = "system:kube-controller-manager"
# A real controller manager is one ServiceAccount per controller; ours is one user that has the roles of all these.
OURS = (
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "disruption-controller",
    "generic-garbage-collector",
    "namespace-controller",
    "node-controller",
    "pod-garbage-collector",
    "replicaset-controller",
    "root-ca-cert-publisher",
    "service-account-controller",
)
# A real server forgets events by itself; here a controller does, and it reads what it deletes.
EVENTS = "bramley:controller:event-ttl"
EVENT_RULES = [
    {
        "apiGroups": ["", "events.k8s.io"],
        "resources": ["events"],
        "verbs": ["delete", "get", "list", "watch"],
    }
]
# Who the API is to the agents on nodes, as clusters made by kubeadm call it; `auth.bootstrap` knows it too.
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
# What a metrics server brings along: permission to read Pods includes their usage.
METRICS_READER = "system:aggregated-metrics-reader"
METRICS_RULES = [
    {"apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list"]}
]
METRICS_LABELS = {f"{GROUP}/aggregate-to-{role}": "true" for role in ("admin", "edit", "view")}
LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}

Json = dict[str, Any]


def cut(listed: Json) -> list[Json]:
    """Return the entries of the data file, sorted."""
    whole = [*listed["items"], *_own()]
    return sorted(
        (_entry(each) for each in whole),
        key=lambda entry: (entry["resource"], entry["namespace"], entry["name"]),
    )


def _entry(body: Json) -> Json:
    meta = body["metadata"]
    meta_kept = {key: meta[key] for key in ("annotations", "labels") if key in meta}
    order = ("aggregationRule", "roleRef", "rules", "subjects")
    fields = {key: body[key] for key in order if key in body}
    return {
        "kind": body["kind"],
        "resource": f"{PLURALS[body['kind']]}.{GROUP}",
        "namespace": meta.get("namespace", ""),
        "name": meta["name"],
        "metadata": meta_kept,
        "rest": fields,
    }


def _own() -> list[Json]:
    role = {"kind": "ClusterRole", "metadata": _meta(EVENTS), "rules": EVENT_RULES}
    # The scheduler is one of our controllers too.
    roles = {
        "bramley:controller:scheduler": "system:kube-scheduler",
        EVENTS: EVENTS,
        **{f"bramley:controller:{each}": f"system:controller:{each}" for each in OURS},
    }
    bindings = [_binding(name, given, CONTROLLERS) for name, given in roles.items()]
    return [role, *bindings, *_of_agents()]


def _of_agents() -> list[Json]:
    """Return the rules that let the API call agents, and clients read the results."""
    meta = _meta(METRICS_READER)
    labels = {**meta["labels"], **METRICS_LABELS}
    return [
        _binding("bramley:kubelet-client", "system:kubelet-api-admin", KUBELET_CLIENT),
        {
            "kind": "ClusterRole",
            "metadata": {**meta, "labels": labels},
            "rules": METRICS_RULES,
        },
    ]


def _binding(name: str, role: str, user: str) -> Json:
    return {
        "kind": "ClusterRoleBinding",
        "metadata": _meta(name),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    }


def _meta(name: str) -> Json:
    return {"name": name, "labels": LABELS, "annotations": ANNOTATIONS}


def main() -> None:
    """Rewrite the data file."""
    entries = cut(json.loads(Path(sys.argv[1]).read_text()))
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in entries)
    OUT.write_text(f"[\n{lines}\n]\n")
    print(f"{len(entries)} roles and bindings in {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
