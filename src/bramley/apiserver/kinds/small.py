"""Kinds whose rules fit in a few lines: Leases, RBAC, PriorityClasses, quotas, revisions, runtimes."""

from __future__ import annotations

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_RBAC = "rbac.authorization.k8s.io"
_HIGHEST_PRIORITY = 1_000_000_000
_POLICIES = ("PreemptLowerPriority", "Never")
_COORDINATED = ("strategy", "preferredHolder")


def default_lease(new: Json) -> None:
    """Show the spec, also when it is empty, without what only a coordinated election reads, which is off by default."""
    spec = new.setdefault("spec", {})
    for field in _COORDINATED:
        spec.pop(field, None)


def check_lease(new: Json) -> list[Cause]:
    """Return what is wrong with a Lease."""
    spec = new["spec"]
    found = []
    if spec.get("leaseDurationSeconds", 1) <= 0:
        value, field = spec["leaseDurationSeconds"], "spec.leaseDurationSeconds"
        found.append(causes.invalid(field, value, "must be greater than 0"))
    if spec.get("leaseTransitions", 0) < 0:
        value, field = spec["leaseTransitions"], "spec.leaseTransitions"
        found.append(causes.invalid(field, value, "must be greater than or equal to 0"))
    return found


def default_role(new: Json) -> None:
    """Show the rules, also when there are none."""
    new.setdefault("rules", None)


def check_role(new: Json) -> list[Cause]:
    """Return what is wrong with a Role or ClusterRole."""
    cluster_wide = new["kind"] == "ClusterRole"
    found: list[Cause] = []
    for index, rule in enumerate(new.get("rules") or []):
        found += _wrong_rule(rule, f"rules[{index}]", cluster_wide=cluster_wide)
    return found


def _wrong_rule(rule: Json, field: str, *, cluster_wide: bool) -> list[Cause]:
    found = []
    if not rule.get("verbs"):
        found.append(causes.required(f"{field}.verbs", "verbs must contain at least one value"))
    if rule.get("nonResourceURLs"):
        if not cluster_wide:
            detail = "namespaced rules cannot apply to non-resource URLs"
            found.append(
                causes.invalid(f"{field}.nonResourceURLs", rule["nonResourceURLs"], detail)
            )
        if any(rule.get(part) for part in ("apiGroups", "resources", "resourceNames")):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            found.append(
                causes.invalid(f"{field}.nonResourceURLs", rule["nonResourceURLs"], detail)
            )
        return found
    if not rule.get("apiGroups"):
        detail = "resource rules must supply at least one api group"
        found.append(causes.required(f"{field}.apiGroups", detail))
    if not rule.get("resources"):
        detail = "resource rules must supply at least one resource"
        found.append(causes.required(f"{field}.resources", detail))
    return found


def default_binding(new: Json) -> None:
    """Fill in the groups that references leave out."""
    if isinstance(new.get("roleRef"), dict):
        new["roleRef"] = {**new["roleRef"], "apiGroup": new["roleRef"].get("apiGroup") or _RBAC}
    if new.get("subjects"):
        new["subjects"] = [_with_group(subject) for subject in new["subjects"]]


def _with_group(subject: Json) -> Json:
    if subject.get("kind") in {"User", "Group"}:
        return {**subject, "apiGroup": subject.get("apiGroup") or _RBAC}
    return subject


def check_binding(new: Json) -> list[Cause]:
    """Return what is wrong with a RoleBinding or ClusterRoleBinding."""
    reference = new.get("roleRef", {})
    kinds = ("ClusterRole",) if new["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
    found = []
    if reference.get("apiGroup") != _RBAC:
        group = reference.get("apiGroup", "")
        found.append(causes.unsupported("roleRef.apiGroup", group, (_RBAC,)))
    if reference.get("kind") not in kinds:
        found.append(causes.unsupported("roleRef.kind", reference.get("kind", ""), kinds))
    if not reference.get("name"):
        found.append(causes.required("roleRef.name"))
    for index, subject in enumerate(new.get("subjects", [])):
        found += _wrong_subject(subject, f"subjects[{index}]", cluster_wide=len(kinds) == 1)
    return found


def _wrong_subject(subject: Json, field: str, *, cluster_wide: bool) -> list[Cause]:
    kinds = ("ServiceAccount", "User", "Group")
    found = [] if subject.get("name") else [causes.required(f"{field}.name")]
    if subject.get("kind") not in kinds:
        found.append(causes.unsupported(f"{field}.kind", subject.get("kind", ""), kinds))
    if subject.get("kind") == "ServiceAccount" and cluster_wide and not subject.get("namespace"):
        found.append(causes.required(f"{field}.namespace"))
    return found


def check_binding_change(new: Json, old: Json) -> list[Cause]:
    """Return what an update of a binding may not do."""
    if new.get("roleRef") == old.get("roleRef"):
        return []
    reference = new.get("roleRef", {})
    # A real server shows its own names of the fields here.
    own_names = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
    shown = {own: reference.get(name, "") for own, name in own_names.items()}
    return [causes.invalid("roleRef", shown, "cannot change roleRef")]


def complete_priority(new: Json) -> None:
    """Give a new PriorityClass its generation; it never grows, because the value never changes."""
    new["metadata"]["generation"] = 1


def default_priority(new: Json) -> None:
    """Fill in what a PriorityClass leaves out."""
    new.setdefault("value", 0)
    new.setdefault("preemptionPolicy", "PreemptLowerPriority")


def check_priority(new: Json) -> list[Cause]:
    """Return what is wrong with a PriorityClass."""
    found = []
    name = new["metadata"].get("name", "")
    if new["value"] > _HIGHEST_PRIORITY and not name.startswith("system-"):
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        found.append(causes.forbidden("value", detail))
    if new["preemptionPolicy"] not in _POLICIES:
        found.append(causes.unsupported("preemptionPolicy", new["preemptionPolicy"], _POLICIES))
    return found


def check_priority_change(new: Json, old: Json) -> list[Cause]:
    """Return what an update of a PriorityClass may not do."""
    found = []
    if new["value"] != old["value"]:
        found.append(causes.forbidden("value", "may not be changed in an update."))
    if new["preemptionPolicy"] != old["preemptionPolicy"]:
        policy = new["preemptionPolicy"]
        found.append(causes.invalid("preemptionPolicy", policy, "field is immutable"))
    return found


def default_quota(new: Json) -> None:
    """Show the spec and the status of a ResourceQuota, also when they are empty."""
    new.setdefault("spec", {})
    new.setdefault("status", {})


def check_quota(new: Json) -> list[Cause]:
    """Return what is wrong with a ResourceQuota."""
    found: list[Cause] = []
    for name in new["spec"].get("hard", {}):
        field = f"spec.hard[{name}]"
        wrong = names.qualified_name(name)
        found += [causes.invalid(field, name, each) for each in wrong]
        if wrong:
            found.append(causes.invalid(field, name, "must be a standard resource for quota"))
    return found


def default_limits(new: Json) -> None:
    """Show the limits of a LimitRange, also when there are none."""
    new["spec"] = {"limits": None, **new.get("spec", {})}


def check_revision(new: Json) -> list[Cause]:
    """Return what is wrong with a ControllerRevision."""
    found = [] if "data" in new else [causes.required("data", "data is mandatory")]
    if new.get("revision", 0) < 0:
        detail = "must be greater than or equal to 0"
        found.append(causes.invalid("revision", new["revision"], detail))
    return found


def default_revision(new: Json) -> None:
    """Show the number of a ControllerRevision."""
    new.setdefault("revision", 0)


def check_revision_change(new: Json, old: Json) -> list[Cause]:
    """Return what an update of a ControllerRevision may not do."""
    if new.get("data") == old.get("data"):
        return []
    return [causes.invalid("data", new.get("data"), "field is immutable")]


def check_runtime(new: Json) -> list[Cause]:
    """Return what is wrong with a RuntimeClass."""
    handler = new.get("handler", "")
    return [causes.invalid("handler", handler, each) for each in names.label(handler)]


def check_runtime_change(new: Json, old: Json) -> list[Cause]:
    """Return what an update of a RuntimeClass may not do."""
    if new.get("handler") == old.get("handler"):
        return []
    return [causes.invalid("handler", new.get("handler"), "field is immutable")]
