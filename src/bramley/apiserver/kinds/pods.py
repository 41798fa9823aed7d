"""Pods: validation of a spec, in a Pod or in a Pod template, and of updates of a Pod, its status and its subresources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bramley.apiserver.apimachinery import causes, metadata, names
from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.kinds import pod_containers, pod_defaults, pod_scheduling, pod_volumes
from bramley.apiserver.kinds.definitions import kind
from bramley.apiserver.registry.resources import Json, SelectableField, ServedResource, Strategy
from bramley.base.errors import Cause

FIELDS = (
    SelectableField("spec.nodeName", ("spec", "nodeName")),
    SelectableField("spec.restartPolicy", ("spec", "restartPolicy")),
    SelectableField("spec.schedulerName", ("spec", "schedulerName")),
    SelectableField("spec.serviceAccountName", ("spec", "serviceAccountName")),
    SelectableField("spec.hostNetwork", ("spec", "hostNetwork"), "false"),
    SelectableField("status.phase", ("status", "phase")),
    SelectableField("status.podIP", ("status", "podIP")),
    SelectableField("status.nominatedNodeName", ("status", "nominatedNodeName")),
)
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_GROUP_CHANGE_POLICIES = ("Always", "OnRootMismatch")
_MAX_SECONDS = 2**31 - 1
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_COMPUTE = frozenset({"cpu", "memory"})
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def kind_of(settings: Settings) -> ServedResource:
    """Return the kind Pod, with the default tolerations of the settings."""
    return kind(
        "Pod",
        short_names=("po",),
        categories=("all",),
        has_status=True,
        selectable=FIELDS,
        strategy=Strategy(
            prepare_for_create=pod_defaults.complete,
            default=partial(pod_defaults.default, outage_toleration=settings.outage_toleration),
            prepare_for_update=keep_priority,
            validate=check,
            validate_update=check_change,
            validate_status=check_status,
            counts_generation=True,
            returns_deleted=True,
            graceful=True,
        ),
    )


def check(new: Json) -> list[Cause]:
    """Return what is wrong with a Pod."""
    errors = check_spec(new["spec"], "spec")
    if new["spec"].get("schedulingGates") and new["spec"].get("nodeName"):
        detail = "cannot be set until all schedulingGates have been cleared"
        errors.append(causes.forbidden("spec.nodeName", detail))
    if not new["spec"].get("serviceAccountName"):
        errors += pod_volumes.check_without_account(new["spec"].get("volumes", []), "spec.volumes")
    return errors


def check_spec(spec: Json, field: str) -> list[Cause]:
    """Return what is wrong with a Pod spec at a field, in the order of kube-apiserver."""
    return [
        *pod_volumes.check(spec.get("volumes", []), f"{field}.volumes"),
        *_validate_containers(spec, field),
        *_validate_choices(spec, field),
        *metadata.check_labels(spec.get("nodeSelector", {}), f"{field}.nodeSelector"),
        *_validate_identity(spec["securityContext"], f"{field}.securityContext"),
        *pod_scheduling.check_affinity(spec.get("affinity", {}), f"{field}.affinity"),
        *pod_scheduling.check_dns(spec, f"{field}.dnsConfig"),
        *pod_scheduling.check_gates(spec, field),
        *pod_scheduling.check_spread_constraints(
            spec.get("topologySpreadConstraints", []), f"{field}.topologySpreadConstraints"
        ),
        *_validate_references(spec, field),
        *_validate_numbers(spec, field),
        *pod_scheduling.check_host_names(spec, field),
        *pod_scheduling.check_tolerations(spec.get("tolerations", []), f"{field}.tolerations"),
        *pod_scheduling.check_host_aliases(spec.get("hostAliases", []), f"{field}.hostAliases"),
    ]


def _validate_containers(spec: Json, field: str) -> Iterator[Cause]:
    volumes = {each.get("name", "") for each in spec.get("volumes", [])}
    grace = spec["terminationGracePeriodSeconds"]
    if not spec.get("containers"):
        yield causes.required(f"{field}.containers")
    seen: set[str] = set()
    for part in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(part, [])):
            at = f"{field}.{part}[{index}]"
            yield from pod_containers.check(container, at, volumes)
            yield from _validate_name(container.get("name", ""), at, seen)
            if part == "containers":
                yield from pod_containers.check_running(container, at, grace)
            elif part == "initContainers":
                yield from pod_containers.check_init(container, at, grace)
        if part == "containers":
            yield from pod_containers.check_host_ports(spec.get(part, []), f"{field}.{part}")


def _validate_name(name: str, field: str, seen: set[str]) -> Iterator[Cause]:
    if name and name in seen:
        yield causes.duplicate(f"{field}.name", name)
    seen.add(name)


def _validate_choices(spec: Json, field: str) -> Iterator[Cause]:
    for name, allowed in (("restartPolicy", _RESTART_POLICIES), ("dnsPolicy", _DNS_POLICIES)):
        yield from causes.not_one_of(f"{field}.{name}", spec[name], allowed)


def _validate_identity(context: Json, field: str) -> Iterator[Cause]:
    groups = {
        f"supplementalGroups[{at}]": each
        for at, each in enumerate(context.get("supplementalGroups", []))
    }
    users = ("fsGroup", "runAsUser", "runAsGroup", *groups)
    yield from pod_containers.check_ids({**context, **groups}, users, field)
    policy = context.get("fsGroupChangePolicy", _GROUP_CHANGE_POLICIES[0])
    yield from causes.not_one_of(f"{field}.fsGroupChangePolicy", policy, _GROUP_CHANGE_POLICIES)


def _validate_references(spec: Json, field: str) -> Iterator[Cause]:
    for name in ("serviceAccountName", "nodeName"):
        if spec.get(name):
            yield from causes.invalid_each(
                f"{field}.{name}", spec[name], names.subdomain(spec[name])
            )


def _validate_numbers(spec: Json, field: str) -> Iterator[Cause]:
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline <= _MAX_SECONDS:
        detail = f"must be between 1 and {_MAX_SECONDS}, inclusive"
        yield causes.invalid(f"{field}.activeDeadlineSeconds", deadline, detail)


def keep_priority(new: Json, old: Json) -> None:
    """Keep the priority that a Pod got when it was created unless an update sets it."""
    spec, old_spec = new.get("spec"), old["spec"]
    if isinstance(spec, dict) and not ("priority" in spec and "preemptionPolicy" in spec):
        fixed = {key: old_spec[key] for key in ("priority", "preemptionPolicy") if key in old_spec}
        new["spec"] = {**fixed, **spec}


def check_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a Pod."""
    new_spec, old_spec = new["spec"], old["spec"]
    for field in ("containers", "initContainers"):
        if len(new_spec.get(field, [])) != len(old_spec.get(field, [])):
            detail = "pod updates may not add or remove containers"
            return [causes.forbidden(f"spec.{field}", detail)]
    errors = [
        *_validate_deadline(new_spec, old_spec),
        *_validate_tolerations(new_spec, old_spec),
        *_validate_gates(new_spec, old_spec),
    ]
    if old_spec.get("schedulingGates"):
        errors += _validate_node_terms(new_spec, old_spec)
    if _immutable_fields(new_spec, old_spec) != _immutable_fields(old_spec, old_spec):
        errors.append(causes.forbidden("spec", _MAY_CHANGE))
    return errors


def check_status(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a Pod's status."""
    after, before = new.get("status", {}), old.get("status", {})
    errors = [*_validate_restarts(after, before, old["spec"])]
    if after.get("qosClass") == before.get("qosClass"):
        return errors
    changed = causes.invalid("status.qosClass", after.get("qosClass", ""), "field is immutable")
    return [changed, *errors]


def check_ephemeral(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a Pod's ephemeral containers, which can only be added."""
    field, names = "spec.ephemeralContainers", {}
    for each in new["spec"].get("ephemeralContainers", []):
        names[each.get("name")] = each
    errors = []
    for each in old["spec"].get("ephemeralContainers", []):
        prefix = f"existing ephemeral containers {causes.quoted(each['name'])} may not be"
        if each["name"] not in names:
            errors.append(causes.forbidden(field, f"{prefix} removed\n"))
        elif names[each["name"]] != each:
            errors.append(causes.forbidden(field, f"{prefix} changed\n"))
    return errors


def check_resize(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a Pod's resources."""
    new_spec, old_spec = new["spec"], old["spec"]
    if pod_defaults.qos_class(new_spec) != old.get("status", {}).get("qosClass"):
        shown = new.get("status", {}).get("qosClass", "")
        detail = "Pod QOS Class may not change as a result of resizing"
        return [causes.invalid("spec", shown, detail)]
    if _without_compute(new_spec) != _without_compute(old_spec):
        return [causes.forbidden("spec", "only cpu and memory resources are mutable")]
    return []


def _without_compute(spec: Json) -> Json:
    containers = []
    for each in spec.get("containers", []):
        resources = each.get("resources", {})
        other_amounts = {
            part: {key: value for key, value in amounts.items() if key not in _COMPUTE}
            for part, amounts in resources.items()
            if isinstance(amounts, dict)
        }
        other_amounts = {part: amounts for part, amounts in other_amounts.items() if amounts}
        containers.append({**each, "resources": other_amounts, "resizePolicy": None})
    return {**spec, "containers": containers}


def _immutable_fields(spec: Json, old_spec: Json) -> Json:
    fixed = {
        key: value
        for key, value in spec.items()
        if key not in {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    }
    for field in ("containers", "initContainers"):
        fixed[field] = [{**each, "image": ""} for each in spec.get(field, [])]
    grace = "terminationGracePeriodSeconds"
    if old_spec.get(grace, 0) < 0 and fixed.get(grace) == 1:
        fixed[grace] = old_spec[grace]
    if old_spec.get("schedulingGates"):
        fixed.pop("nodeSelector", None)
        kept = {
            key: each for key, each in fixed.pop("affinity", {}).items() if key != "nodeAffinity"
        }
        fixed["affinity"] = kept
    return fixed


def _validate_deadline(new: Json, old: Json) -> list[Cause]:
    before, after = (each.get("activeDeadlineSeconds") for each in (old, new))
    if before is None or (after is not None and after <= before):
        return []
    detail = "must be less than or equal to previous value"
    if after is None:
        detail = "must not update from a positive integer to nil value"
    return [causes.invalid("spec.activeDeadlineSeconds", after, detail)]


def _validate_tolerations(new: Json, old: Json) -> list[Cause]:
    before, after = (
        [{**each, "tolerationSeconds": None} for each in spec.get("tolerations", [])]
        for spec in (old, new)
    )
    detail = "existing toleration can not be modified except its tolerationSeconds"
    unchanged = all(each in after for each in before)
    return [] if unchanged else [causes.forbidden("spec.tolerations", detail)]


def _validate_gates(new: Json, old: Json) -> Iterator[Cause]:
    old_names = {each.get("name") for each in old.get("schedulingGates", [])}
    for index, gate in enumerate(new.get("schedulingGates", [])):
        if gate.get("name") not in old_names:
            detail = (
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            )
            yield causes.forbidden(f"spec.schedulingGates[{index}].name", detail)


def _validate_node_terms(new: Json, old: Json) -> Iterator[Cause]:
    """Yield what is wrong with a gated Pod's node selection, which may only become narrower."""
    selector = new.get("nodeSelector", {})
    if any(selector.get(key) != value for key, value in old.get("nodeSelector", {}).items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield causes.invalid("spec.nodeSelector", selector, detail)
    old_terms, new_terms = _node_terms(old), _node_terms(new)
    field = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if old_terms and len(old_terms) != len(new_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield causes.invalid(field, new_terms, detail)
        return
    for index, (before, after) in enumerate(zip(old_terms, new_terms, strict=False)):
        if not all(
            _only_grows(before, after, name) for name in ("matchExpressions", "matchFields")
        ):
            detail = "only additions are allowed (no mutations or deletions)"
            yield causes.invalid(f"{field}[{index}]", after, detail)


def _node_terms(spec: Json) -> list[Json]:
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {})
    terms: list[Json] = required.get("nodeSelectorTerms", [])
    return terms


def _only_grows(before: Json, after: Json, field: str) -> bool:
    old_items = before.get(field, [])
    grown: bool = after.get(field, [])[: len(old_items)] == old_items
    return grown


def _validate_restarts(after: Json, before: Json, spec: Json) -> Iterator[Cause]:
    """Yield a cause for each container that had ended for good and runs again."""
    policy = spec.get("restartPolicy")
    if policy == "Always":
        return
    states = {
        each.get("name"): each.get("state", {}) for each in after.get("containerStatuses", [])
    }
    for index, each in enumerate(before.get("containerStatuses", [])):
        terminated = each.get("state", {}).get("terminated")
        if terminated is None or (terminated.get("exitCode") and policy == "OnFailure"):
            continue
        if each.get("name") in states and "terminated" not in states[each["name"]]:
            detail = "may not be transitioned to non-terminated state"
            yield causes.forbidden(f"status.containerStatuses[{index}].state", detail)
