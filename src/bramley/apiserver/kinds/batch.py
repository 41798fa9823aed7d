"""The group batch: Jobs and CronJobs, stored and defaulted as kube-apiserver does; no controller here runs them."""

from __future__ import annotations

from collections.abc import Iterator

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.kinds import amounts, apps, label_selectors, workload_validation
from bramley.apiserver.kinds.definitions import initial_status, kind
from bramley.apiserver.registry.resources import Json, SelectableField, Strategy
from bramley.base.errors import Cause

_UID_LABEL = "batch.kubernetes.io/controller-uid"
_NAME_LABEL = "batch.kubernetes.io/job-name"
_MODES = ("NonIndexed", "Indexed")
_RESTARTS = ("OnFailure", "Never")
_CONCURRENCY = ("Allow", "Forbid", "Replace")
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
)
_MAY_NOT_CHANGE = ("completions", "selector", "template", "completionMode")
_CRON_FIELDS = 5
_JOB: Json = {
    "parallelism": 1,
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}
_CRON_JOB: Json = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
    "schedule": "",
}


def complete_job(new: Json) -> None:
    """Give a new Job its first status and, unless it has a manual selector, a selector that matches only its Pods."""
    new["status"] = {}
    spec = dict(new.get("spec", {}))
    new["spec"] = spec
    spec.setdefault("manualSelector", False)
    if spec["manualSelector"]:
        return
    meta = new["metadata"]
    selector = spec.get("selector", {})
    uid = {_UID_LABEL: meta["uid"]}
    spec["selector"] = {**selector, "matchLabels": {**selector.get("matchLabels", {}), **uid}}
    template = spec.get("template", {})
    labels = template.get("metadata", {}).get("labels", {})
    job_labels = {"controller-uid": meta["uid"], "job-name": meta.get("name", ""), **uid}
    labels = {**labels, **job_labels, _NAME_LABEL: meta.get("name", "")}
    meta_of_pods = {**template.get("metadata", {}), "labels": labels}
    spec["template"] = {**template, "metadata": meta_of_pods}


def default_job(new: Json) -> None:
    """Set the defaults of a Job."""
    spec = dict(new.get("spec", {}))
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    for field, value in _JOB.items():
        spec.setdefault(field, value)
    spec["template"] = apps.pod_template(spec)
    labels = spec["template"]["metadata"].get("labels")
    if labels and not new["metadata"].get("labels"):
        new["metadata"]["labels"] = labels
    new["spec"] = spec


def check_job(new: Json) -> list[Cause]:
    """Return what is wrong with a Job."""
    spec = new["spec"]
    errors = [*_validate_job_spec(spec, "spec"), *_validate_selector(new)]
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        detail = "when completion mode is Indexed"
        errors.append(causes.required("spec.completions", detail))
    return errors


def check_job_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a Job."""
    new_spec, old_spec = new["spec"], old["spec"]
    return [
        causes.invalid(f"spec.{field}", new_spec.get(field), "field is immutable")
        for field in _MAY_NOT_CHANGE
        if new_spec.get(field) != old_spec.get(field)
    ]


def default_cron_job(new: Json) -> None:
    """Set the defaults of a CronJob, and of its Job template only those of the Pod template."""
    spec = dict(new.get("spec", {}))
    for field, value in _CRON_JOB.items():
        spec.setdefault(field, value)
    template = spec.get("jobTemplate", {})
    job = template.get("spec", {})
    job = {**job, "template": apps.pod_template(job)}
    spec["jobTemplate"] = {**template, "metadata": template.get("metadata", {}), "spec": job}
    new["spec"] = spec


def check_cron_job(new: Json) -> list[Cause]:
    """Return what is wrong with a CronJob."""
    spec = new["spec"]
    counts = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    errors = [*amounts.not_negative(spec, counts, "spec"), *_validate_schedule(spec["schedule"])]
    policy = spec["concurrencyPolicy"]
    errors += causes.not_one_of("spec.concurrencyPolicy", policy, _CONCURRENCY)
    return [*errors, *_validate_job_spec(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")]


def _validate_schedule(schedule: str) -> Iterator[Cause]:
    field = "spec.schedule"
    if not schedule:
        yield causes.required(field)
    elif not schedule.startswith("@"):
        parts = schedule.split()
        if len(parts) != _CRON_FIELDS:
            detail = f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
            yield causes.invalid(field, schedule, detail)


def _validate_job_spec(spec: Json, field: str) -> Iterator[Cause]:
    yield from amounts.not_negative(spec, _COUNTS, field)
    mode = spec.get("completionMode", "NonIndexed")
    yield from causes.not_one_of(f"{field}.completionMode", mode, _MODES)
    template = spec["template"]
    yield from workload_validation.check_template(template, f"{field}.template")
    policy = template["spec"]["restartPolicy"]
    if policy == "Always":
        detail = 'valid values: "OnFailure", "Never"'
        yield causes.required(f"{field}.template.spec.restartPolicy", detail)
    else:
        yield from causes.not_one_of(f"{field}.template.spec.restartPolicy", policy, _RESTARTS)


def _validate_selector(new: Json) -> Iterator[Cause]:
    spec, field = new["spec"], "spec.selector"
    selector, labels = spec.get("selector"), spec["template"]["metadata"].get("labels")
    if selector is None:
        yield causes.required(field)
        return
    yield from label_selectors.check(selector, field)
    only_own = {"matchLabels": {_UID_LABEL: new["metadata"]["uid"]}}
    if not spec.get("manualSelector") and selector != only_own:
        yield causes.invalid(field, selector, "`selector` not auto-generated")
    if not label_selectors.matches(selector, labels or {}):
        detail = "`selector` does not match template `labels`"
        yield causes.invalid("spec.template.metadata.labels", labels, detail)


KINDS = (
    kind(
        "CronJob",
        group="batch",
        short_names=("cj",),
        categories=("all",),
        has_status=True,
        strategy=Strategy(
            prepare_for_create=initial_status(),
            default=default_cron_job,
            validate=check_cron_job,
            counts_generation=True,
        ),
    ),
    kind(
        "Job",
        group="batch",
        categories=("all",),
        has_status=True,
        selectable=(SelectableField("status.successful", ("status", "succeeded"), "0"),),
        strategy=Strategy(
            prepare_for_create=complete_job,
            default=default_job,
            validate=check_job,
            validate_update=check_job_change,
            counts_generation=True,
            orphans_by_default=True,
        ),
    ),
)
