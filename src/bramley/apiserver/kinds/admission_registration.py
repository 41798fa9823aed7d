"""The group admissionregistration.k8s.io: webhooks and policies, stored and defaulted; `rest.admission` does not call them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.kinds.definitions import initial_status, kind
from bramley.apiserver.registry.resources import Json, Strategy
from bramley.base.errors import Cause

GROUP = "admissionregistration.k8s.io"
_WEBHOOK: Json = {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10}
_SEGMENTS = 3
_CHOICES = {"admissionReviewVersions": "v1, v1beta1", "sideEffects": "None, NoneOnDryRun"}


def default_webhooks(new: Json) -> None:
    """Set the defaults of a webhook configuration."""
    if "webhooks" in new:
        mutating = new["kind"].startswith("Mutating")
        more = {"reinvocationPolicy": "Never"} if mutating else {}
        new["webhooks"] = [{**more, **_webhook(each)} for each in new["webhooks"]]


def check_webhooks(new: Json) -> list[Cause]:
    """Return what is wrong with a webhook configuration."""
    errors: list[Cause] = []
    for index, each in enumerate(new.get("webhooks", [])):
        errors += _validate_webhook(each, f"webhooks[{index}]")
    return errors


def default_policy(new: Json) -> None:
    """Set the defaults of a ValidatingAdmissionPolicy."""
    spec = {"failurePolicy": "Fail", **new.get("spec", {})}
    if "matchConstraints" in spec:
        spec["matchConstraints"] = _with_match_defaults(spec["matchConstraints"])
    new["spec"] = spec


def check_policy(new: Json) -> list[Cause]:
    """Return what is wrong with a ValidatingAdmissionPolicy."""
    spec = new["spec"]
    errors = []
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        detail = "validations or auditAnnotations must contain at least one item"
        errors += [
            causes.required(f"spec.{each}", detail) for each in ("validations", "auditAnnotations")
        ]
    if "matchConstraints" not in spec:
        errors.append(causes.required("spec.matchConstraints"))
    elif not spec["matchConstraints"].get("resourceRules"):
        errors.append(causes.required("spec.matchConstraints.resourceRules"))
    return errors


def default_binding(new: Json) -> None:
    """Set the defaults of a ValidatingAdmissionPolicyBinding."""
    spec = new.setdefault("spec", {})
    if "matchResources" in spec:
        new["spec"] = {**spec, "matchResources": _with_match_defaults(spec["matchResources"])}


def check_binding(new: Json) -> list[Cause]:
    """Return what is wrong with a ValidatingAdmissionPolicyBinding."""
    errors = []
    if not new["spec"].get("policyName"):
        errors.append(causes.required("spec.policyName"))
    if not new["spec"].get("validationActions"):
        detail = "at least one validation action is required"
        errors.append(causes.required("spec.validationActions", detail))
    return errors


def _webhook(hook: Json) -> Json:
    webhook = {**_WEBHOOK, "namespaceSelector": {}, "objectSelector": {}, **hook}
    if "rules" in webhook:
        webhook["rules"] = [{"scope": "*", **rule} for rule in webhook["rules"]]
    client = webhook.get("clientConfig", {})
    if "service" in client:
        webhook["clientConfig"] = {**client, "service": {"port": 443, **client["service"]}}
    return webhook


def _with_match_defaults(match: Json) -> Json:
    matching = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, **match}
    for field in ("resourceRules", "excludeResourceRules"):
        if field in matching:
            matching[field] = [{"scope": "*", **rule} for rule in matching[field]]
    return matching


def _validate_webhook(webhook: Json, field: str) -> Iterator[Cause]:
    name = webhook.get("name", "")
    if len(name.split(".")) < _SEGMENTS:
        detail = "should be a domain with at least three segments separated by dots"
        yield causes.invalid(f"{field}.name", name, detail)
    for name, choices in _CHOICES.items():
        if not webhook.get(name):
            yield causes.required(f"{field}.{name}", f"must specify one of {choices}")
    if len(webhook.get("clientConfig", {}).keys() & {"url", "service"}) != 1:
        detail = "exactly one of url or service is required"
        yield causes.required(f"{field}.clientConfig", detail)


_kind = partial(kind, group=GROUP, namespaced=False, categories=("api-extensions",))
_strategy = partial(Strategy, counts_generation=True, unconditional_update=False)
KINDS = (
    *(
        _kind(
            f"{sort}WebhookConfiguration",
            strategy=_strategy(
                shape=f"admissionregistration.v1.{sort}WebhookConfiguration",
                default=default_webhooks,
                validate=check_webhooks,
            ),
        )
        for sort in ("Mutating", "Validating")
    ),
    _kind(
        "ValidatingAdmissionPolicy",
        plural="validatingadmissionpolicies",
        has_status=True,
        strategy=_strategy(
            shape="admissionregistration.v1.ValidatingAdmissionPolicy",
            prepare_for_create=initial_status(),
            default=default_policy,
            validate=check_policy,
        ),
    ),
    _kind(
        "ValidatingAdmissionPolicyBinding",
        strategy=_strategy(
            shape="admissionregistration.v1.ValidatingAdmissionPolicyBinding",
            default=default_binding,
            validate=check_binding,
        ),
    ),
)
