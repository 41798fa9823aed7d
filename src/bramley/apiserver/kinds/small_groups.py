"""API groups with one kind each: Lease, PriorityClass, RuntimeClass, HorizontalPodAutoscaler, PodDisruptionBudget, CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Iterator

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds import amounts, label_selectors
from bramley.apiserver.kinds.definitions import (
    go_struct,
    immutable,
    initial_status,
    kind,
    set_defaults,
)
from bramley.apiserver.registry.resources import Json, Strategy
from bramley.base.errors import Cause

_HIGHEST_PRIORITY = 1_000_000_000
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_COORDINATED = ("strategy", "preferredHolder")
_DEFAULT_METRIC: Json = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def default_lease(new: Json) -> None:
    """Set an empty spec, and drop the fields of coordinated leader election, which is off by default."""
    spec = new.setdefault("spec", {})
    for field in _COORDINATED:
        spec.pop(field, None)


def check_lease(new: Json) -> list[Cause]:
    """Return what is wrong with a Lease."""
    spec, errors = new["spec"], []
    if spec.get("leaseDurationSeconds", 1) <= 0:
        value = spec["leaseDurationSeconds"]
        errors.append(causes.invalid("spec.leaseDurationSeconds", value, "must be greater than 0"))
    return [*errors, *amounts.not_negative(spec, ("leaseTransitions",), "spec")]


def check_priority(new: Json) -> list[Cause]:
    """Return what is wrong with a PriorityClass."""
    errors = []
    name = new["metadata"].get("name", "")
    if new["value"] > _HIGHEST_PRIORITY and not name.startswith("system-"):
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        errors.append(causes.forbidden("value", detail))
    policy = new["preemptionPolicy"]
    return errors + causes.not_one_of("preemptionPolicy", policy, _PREEMPTION_POLICIES)


def check_priority_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a PriorityClass."""
    errors = immutable("preemptionPolicy")(new, old)
    if new["value"] == old["value"]:
        return errors
    return [causes.forbidden("value", "may not be changed in an update."), *errors]


def check_runtime(new: Json) -> list[Cause]:
    """Return what is wrong with a RuntimeClass."""
    handler = new.get("handler", "")
    return causes.invalid_each("handler", handler, names.label(handler))


def default_autoscaler(new: Json) -> None:
    """Set the defaults of an autoscaler."""
    spec = {"minReplicas": 1, "maxReplicas": 0, "scaleTargetRef": {}, **new.get("spec", {})}
    if not spec.get("metrics"):
        spec["metrics"] = [_DEFAULT_METRIC]
    new["spec"] = spec
    new["status"] = {"currentMetrics": None, "desiredReplicas": 0, **new.get("status", {})}


def check_autoscaler(new: Json) -> list[Cause]:
    """Return what is wrong with an autoscaler."""
    spec = new["spec"]
    least, most, reference = spec["minReplicas"], spec["maxReplicas"], spec["scaleTargetRef"]
    errors = []
    if least < 1:
        errors.append(
            causes.invalid("spec.minReplicas", least, "must be greater than or equal to 1")
        )
    if most < 1:
        errors.append(causes.invalid("spec.maxReplicas", most, "must be greater than 0"))
    if most < least:
        detail = "must be greater than or equal to `minReplicas`"
        errors.append(causes.invalid("spec.maxReplicas", most, detail))
    field = "spec.scaleTargetRef"
    errors += causes.missing(reference, ("kind", "name"), field)
    version = reference.get("apiVersion", "")
    if not version.partition("/")[0] or (
        version == "v1" and reference.get("kind") != "ReplicationController"
    ):
        detail = "apiVersion must specify API group"
        errors.append(causes.invalid(f"{field}.apiVersion", version, detail))
    return errors


def default_budget(new: Json) -> None:
    """Set the fields that kube-apiserver always shows of a budget."""
    new.setdefault("spec", {})
    new["status"] = {**dict.fromkeys(_COUNTS, 0), **new.get("status", {})}


def check_budget(new: Json) -> list[Cause]:
    """Return what is wrong with a budget."""
    spec = new["spec"]
    errors = [*_validate_budget_amounts(spec)]
    errors += label_selectors.check(spec.get("selector") or {}, "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy", _EVICTION_POLICIES[0])
    field = "spec.unhealthyPodEvictionPolicy"
    return errors + causes.not_one_of(field, policy, _EVICTION_POLICIES)


def _validate_budget_amounts(spec: Json) -> Iterator[Cause]:
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = go_struct(
            MinAvailable=spec["minAvailable"],
            Selector=spec.get("selector"),
            MaxUnavailable=spec["maxUnavailable"],
            UnhealthyPodEvictionPolicy=spec.get("unhealthyPodEvictionPolicy"),
        )
        detail = "minAvailable and maxUnavailable cannot be both set"
        yield Cause("spec", "FieldValueInvalid", f"Invalid value: {shown}: {detail}")
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            yield from amounts.check_count_or_percent(spec[name], f"spec.{name}")
            yield from amounts.check_percent_limit(spec[name], f"spec.{name}")


KINDS = (
    kind(
        "Lease",
        group="coordination.k8s.io",
        strategy=Strategy(
            default=default_lease,
            validate=check_lease,
            create_on_update=True,
            unconditional_update=False,
            qualified_finalizers=False,
        ),
    ),
    kind(
        "PriorityClass",
        group="scheduling.k8s.io",
        plural="priorityclasses",
        namespaced=False,
        short_names=("pc",),
        strategy=Strategy(
            default=set_defaults(value=0, preemptionPolicy="PreemptLowerPriority"),
            validate=check_priority,
            validate_update=check_priority_change,
            # Its generation never changes.
            prepare_for_create=lambda new: new["metadata"].update(generation=1),
        ),
    ),
    kind(
        "RuntimeClass",
        group="node.k8s.io",
        plural="runtimeclasses",
        namespaced=False,
        strategy=Strategy(
            validate=check_runtime,
            validate_update=immutable("handler"),
            create_on_update=True,
            unconditional_update=False,
        ),
    ),
    # Version 2 only: version 1 shows less of the same objects, and no controller here uses them.
    kind(
        "HorizontalPodAutoscaler",
        group="autoscaling",
        version="v2",
        short_names=("hpa",),
        categories=("all",),
        has_status=True,
        strategy=Strategy(
            shape="autoscaling.v2.HorizontalPodAutoscaler",
            prepare_for_create=initial_status(currentMetrics=None, desiredReplicas=0),
            default=default_autoscaler,
            validate=check_autoscaler,
        ),
    ),
    kind(
        "PodDisruptionBudget",
        group="policy",
        short_names=("pdb",),
        has_status=True,
        strategy=Strategy(
            prepare_for_create=initial_status(**dict.fromkeys(_COUNTS, 0)),
            default=default_budget,
            validate=check_budget,
            validate_status=lambda new, _: [
                *amounts.not_negative(new["status"], _COUNTS, "status")
            ],
            counts_generation=True,
            unconditional_update=False,
        ),
    ),
    kind(
        "CustomResourceDefinition",
        group="apiextensions.k8s.io",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        has_status=True,
        strategy=Strategy(
            counts_generation=True, unconditional_update=False, qualified_finalizers=False
        ),
    ),
)
