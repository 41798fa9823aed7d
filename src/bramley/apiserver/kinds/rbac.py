"""The group rbac.authorization.k8s.io: roles, bindings and their validation."""

from __future__ import annotations

from functools import partial

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds.definitions import kind, set_defaults
from bramley.apiserver.registry.resources import Json, Strategy
from bramley.base.errors import Cause

GROUP = "rbac.authorization.k8s.io"


def check_role(new: Json) -> list[Cause]:
    """Return what is wrong with a Role or ClusterRole."""
    cluster_wide = new["kind"] == "ClusterRole"
    errors: list[Cause] = []
    for index, rule in enumerate(new.get("rules") or []):
        errors += _validate_rule(rule, f"rules[{index}]", cluster_wide=cluster_wide)
    return errors


def _validate_rule(rule: Json, field: str, *, cluster_wide: bool) -> list[Cause]:
    errors = []
    if not rule.get("verbs"):
        errors.append(causes.required(f"{field}.verbs", "verbs must contain at least one value"))
    if rule.get("nonResourceURLs"):
        wrong = [] if cluster_wide else ["namespaced rules cannot apply to non-resource URLs"]
        if any(rule.get(part) for part in ("apiGroups", "resources", "resourceNames")):
            wrong.append("rules cannot apply to both regular resources and non-resource URLs")
        urls = rule["nonResourceURLs"]
        return errors + causes.invalid_each(f"{field}.nonResourceURLs", urls, wrong)
    return errors + [
        causes.required(f"{field}.{name}", f"resource rules must supply at least one {noun}")
        for name, noun in (("apiGroups", "api group"), ("resources", "resource"))
        if not rule.get(name)
    ]


def default_binding(new: Json) -> None:
    """Set the default API groups of references."""
    if isinstance(new.get("roleRef"), dict):
        new["roleRef"] = {**new["roleRef"], "apiGroup": new["roleRef"].get("apiGroup") or GROUP}
    if new.get("subjects"):
        new["subjects"] = [_with_group(subject) for subject in new["subjects"]]


def _with_group(subject: Json) -> Json:
    if subject.get("kind") in {"User", "Group"}:
        return {**subject, "apiGroup": subject.get("apiGroup") or GROUP}
    return subject


def check_binding(new: Json) -> list[Cause]:
    """Return what is wrong with a RoleBinding or ClusterRoleBinding."""
    reference = new.get("roleRef", {})
    kinds = ("ClusterRole",) if new["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
    errors = causes.not_one_of("roleRef.apiGroup", reference.get("apiGroup", ""), (GROUP,))
    errors += causes.not_one_of("roleRef.kind", reference.get("kind", ""), kinds)
    errors += causes.missing(reference, ("name",), "roleRef")
    for index, subject in enumerate(new.get("subjects", [])):
        errors += _validate_subject(subject, f"subjects[{index}]", cluster_wide=len(kinds) == 1)
    return errors


def _validate_subject(subject: Json, field: str, *, cluster_wide: bool) -> list[Cause]:
    kinds = ("ServiceAccount", "User", "Group")
    errors = causes.missing(subject, ("name",), field)
    errors += causes.not_one_of(f"{field}.kind", subject.get("kind", ""), kinds)
    if subject.get("kind") == "ServiceAccount" and cluster_wide:
        errors += causes.missing(subject, ("namespace",), field)
    return errors


def check_binding_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a binding."""
    if new.get("roleRef") == old.get("roleRef"):
        return []
    reference = new.get("roleRef", {})
    # kube-apiserver shows the Go names of the fields here.
    own_names = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
    shown = {own: reference.get(name, "") for own, name in own_names.items()}
    return [causes.invalid("roleRef", shown, "cannot change roleRef")]


_strategy = partial(Strategy, name=names.path_segment, create_on_update=True)
_STRATEGIES = {
    "Role": _strategy(default=set_defaults(rules=None), validate=check_role),
    "RoleBinding": _strategy(
        default=default_binding, validate=check_binding, validate_update=check_binding_change
    ),
}
KINDS = tuple(
    kind(f"{scope}{name}", group=GROUP, namespaced=not scope, strategy=strategy)
    for scope in ("Cluster", "")
    for name, strategy in _STRATEGIES.items()
)
