"""The rows of RBAC bindings, certificate signing requests, and admission policies and webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from bramley.apiserver.tables.cells import (
    NONE,
    UNSET,
    Cell,
    Json,
    Row,
    age,
    at,
    computed,
    count,
    find,
    human_duration,
    name,
    row,
)

_ADMISSION = "admissionregistration.k8s.io"


def _role(binding: Json) -> str:
    reference = binding.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _subjects(kind: str) -> Cell:
    def cell(binding: Json, _now: datetime) -> str:
        found = [each for each in binding.get("subjects") or () if each.get("kind") == kind]
        return ", ".join(_subject(each) for each in found)

    return cell


def _subject(subject: Json) -> str:
    is_account = subject["kind"] == "ServiceAccount"
    return f"{subject.get('namespace', '')}/{subject['name']}" if is_account else subject["name"]


_BINDING = row(
    name, computed(_role), age, _subjects("User"), _subjects("Group"), _subjects("ServiceAccount")
)


def _request_state(request: Json) -> str:
    types = {each.get("type") for each in find(request, "status.conditions") or ()}
    decision = next((each for each in ("Denied", "Approved") if each in types), "Pending")
    failed = ",Failed" if "Failed" in types else ""
    return decision + failed + (",Issued" if find(request, "status.certificate") else "")


def _requested_duration(request: Json) -> str:
    seconds = find(request, "spec.expirationSeconds")
    return NONE if seconds is None else human_duration(seconds)


def _parameter_kind(policy: Json) -> str:
    kind = find(policy, "spec.paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


def _parameter(binding: Json) -> str:
    reference = find(binding, "spec.paramRef") or {}
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    selector = reference.get("selector")
    return UNSET if selector is None else _go_selector(selector)


def _go_selector(selector: Json) -> str:
    """Return a selector as Go's generated String method prints it."""
    labels = sorted((selector.get("matchLabels") or {}).items())
    texts = "".join(f"{key}: {value}," for key, value in labels)
    others = "".join(
        f"LabelSelectorRequirement{{Key:{each['key']},Operator:{each['operator']},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{texts}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{others}}},}}"
    )


_POLICY = row(name, count("spec.validations"), computed(_parameter_kind), age)
_POLICY_BINDING = row(name, at("spec.policyName"), computed(_parameter), age)
_WEBHOOKS = row(name, count("webhooks"), age)

ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "rolebindings.rbac.authorization.k8s.io": _BINDING,
        "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
        "certificatesigningrequests.certificates.k8s.io": row(
            name,
            age,
            at("spec.signerName", NONE),
            at("spec.username"),
            computed(_requested_duration),
            computed(_request_state),
        ),
        f"validatingadmissionpolicies.{_ADMISSION}": _POLICY,
        f"validatingadmissionpolicybindings.{_ADMISSION}": _POLICY_BINDING,
        f"mutatingwebhookconfigurations.{_ADMISSION}": _WEBHOOKS,
        f"validatingwebhookconfigurations.{_ADMISSION}": _WEBHOOKS,
    }
)
