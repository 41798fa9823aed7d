"""The cases, the recorded answers of a real server, and the list of documented differences: all of them data.

A case is a list of steps; each step is one request. `{ns}` stands for the case's own namespace, and the names below for
the paths of collections in it. Answers are recorded by `python -m tests.contract.kube_api.record`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

HERE = Path(__file__).parent
COLLECTIONS = {
    "cm": "/api/v1/namespaces/{ns}/configmaps",
    "secrets": "/api/v1/namespaces/{ns}/secrets",
    "pods": "/api/v1/namespaces/{ns}/pods",
    "events": "/api/v1/namespaces/{ns}/events",
    "newevents": "/apis/events.k8s.io/v1/namespaces/{ns}/events",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
    "roles": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
    "bindings": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
    "accounts": "/api/v1/namespaces/{ns}/serviceaccounts",
    "services": "/api/v1/namespaces/{ns}/services",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "clusterbindings": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "authn": "/apis/authentication.k8s.io/v1",
    "authz": "/apis/authorization.k8s.io/v1",
    "priorities": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "crds": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "budgets": "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
    "claims": "/api/v1/namespaces/{ns}/persistentvolumeclaims",
    "controllers": "/api/v1/namespaces/{ns}/replicationcontrollers",
    "cronjobs": "/apis/batch/v1/namespaces/{ns}/cronjobs",
    "daemons": "/apis/apps/v1/namespaces/{ns}/daemonsets",
    "deployments": "/apis/apps/v1/namespaces/{ns}/deployments",
    "drivers": "/apis/storage.k8s.io/v1/csidrivers",
    "csinodes": "/apis/storage.k8s.io/v1/csinodes",
    "capacities": "/apis/storage.k8s.io/v1/namespaces/{ns}/csistoragecapacities",
    "endpoints": "/api/v1/namespaces/{ns}/endpoints",
    "slices": "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
    "ingresses": "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses",
    "ingressclasses": "/apis/networking.k8s.io/v1/ingressclasses",
    "jobs": "/apis/batch/v1/namespaces/{ns}/jobs",
    "limits": "/api/v1/namespaces/{ns}/limitranges",
    "netpols": "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
    "nodebindings": "/api/v1/namespaces/{ns}/bindings",
    "quotas": "/api/v1/namespaces/{ns}/resourcequotas",
    "replicasets": "/apis/apps/v1/namespaces/{ns}/replicasets",
    "revisions": "/apis/apps/v1/namespaces/{ns}/controllerrevisions",
    "runtimes": "/apis/node.k8s.io/v1/runtimeclasses",
    "scalers": "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
    "statefulsets": "/apis/apps/v1/namespaces/{ns}/statefulsets",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
    "attachments": "/apis/storage.k8s.io/v1/volumeattachments",
    "templates": "/api/v1/namespaces/{ns}/podtemplates",
    "volumes": "/api/v1/persistentvolumes",
    "mutating": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "validating": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "policies": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "policybindings": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "widgets": "/apis/example.com/v1/namespaces/{ns}/widgets",
}
TYPES = {
    "json": "application/json",
    "yaml": "application/yaml",
    "merge": "application/merge-patch+json",
    "jsonpatch": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "protobuf": "application/vnd.kubernetes.protobuf",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One request: `do` is the method and the path, `send` a value to send as JSON, `raw` a text to send as it is.

    `acting` is the user that the administrator impersonates, `groups` its groups. A step with `until` waits and has no
    answer: it is repeated until the object in the answer has these values (null: has none), because a real server observes
    classes, roles and deletions through its own watches, some time after it has answered.
    """

    do: str
    send: Any = None
    raw: str | None = None
    hex: str | None = None
    managers: bool = False
    type: str | None = None
    accept: str = "application/json"
    acting: str = ""
    groups: tuple[str, ...] = ()
    until: Json | None = None
    during: tuple[Step, ...] = ()

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        user = (("Impersonate-User", self.acting),) if self.acting else ()
        return (*user, *(("Impersonate-Group", group) for group in self.groups))

    @property
    def is_narrow(self) -> bool:
        """Return whether the request concerns only the case's namespace."""
        path = self.do.split(" ", 1)[1].format_map(COLLECTIONS | {"ns": "{ns}"})
        return "/namespaces/{ns}/" in path and all(each.is_narrow for each in self.during)

    @property
    def content_type(self) -> str | None:
        named = self.type or ("json" if self.send is not None or self.raw is not None else None)
        return TYPES.get(named, named) if named else None


@dataclass(frozen=True, slots=True)
class Case:
    """A few requests, under a name that states what they show."""

    group: str
    name: str
    steps: tuple[Step, ...]

    @property
    def id(self) -> str:
        return f"{self.group}: {self.name}"

    @property
    def waits(self) -> bool:
        """Return whether the case mostly waits for the end of a watch or of a token, which other cases do not disturb."""
        return any(
            each.do.startswith("WATCH") or (each.until is not None and "tokenreviews" in each.do)
            for each in self.steps
        )

    @property
    def is_wide(self) -> bool:
        """Return whether the case concerns more than its namespace, so that other cases may read or change the same objects."""
        return not all(each.is_narrow for each in self.steps)


@dataclass(frozen=True, slots=True)
class Difference:
    """An intended difference of the embedded server's answers; `at` names the parts of the answer, or all of it if empty."""

    reason: str
    cases: tuple[str, ...]
    at: tuple[str, ...] = field(default=())


@cache
def controller_safe_cases() -> tuple[Case, ...]:
    """Return the cases with the same answers while a cluster's controllers run."""
    alone = set(yaml.safe_load((HERE / "alone.yaml").read_text()))
    unknown = alone - {case.id for case in cases()}
    if unknown:
        raise ValueError(f"alone.yaml names no cases: {sorted(unknown)}")
    return tuple(case for case in cases() if case.id not in alone)


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases, by file and in order."""
    found = []
    for path in sorted((HERE / "cases").glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text()):
            steps = tuple(_step(each) for each in entry["steps"])
            found.append(Case(path.stem, entry["case"], steps))
    return tuple(found)


@cache
def answers(group: str) -> dict[str, list[Json]]:
    """Return the recorded answers of a group's cases, by name."""
    path = HERE / "answers" / f"{group}.yaml"
    return yaml.safe_load(path.read_text()) if path.exists() else {}


def save_answers(group: str, given: dict[str, list[Json]]) -> None:
    """Write the answers of a group's cases."""
    text = yaml.safe_dump(given, sort_keys=True, width=120, allow_unicode=True)
    (HERE / "answers" / f"{group}.yaml").write_text(text)


@cache
def differences() -> tuple[Difference, ...]:
    """Return the documented differences."""
    entries = yaml.safe_load((HERE / "differences.yaml").read_text()) or []
    return tuple(
        Difference(each["reason"], tuple(each["cases"]), tuple(each.get("at", ())))
        for each in entries
    )


def _step(entry: str | Json) -> Step:
    if isinstance(entry, str):
        return Step(entry)
    during = tuple(_step(each) for each in entry.get("during", ()))
    return Step(**{**entry, "during": during})
