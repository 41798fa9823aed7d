"""The kinds that make Pods, and the budgets that protect these: one entry each."""

from __future__ import annotations

from bramley.apiserver.kinds import disruption_budgets, jobs, small, workload_checks, workloads
from bramley.apiserver.kinds.entries import kind
from bramley.apiserver.registry.resources import (
    Rules,
    ScalePaths,
    SelectableField,
    ServedResource,
)

APPS, BATCH, POLICY = "apps", "batch", "policy"
_SCALE = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector", is_custom=False)


def builtin() -> tuple[ServedResource, ...]:
    """Return what is served of these."""
    return (*_apps(), *_batch(), *_core(), _budget())


def _apps() -> tuple[ServedResource, ...]:
    return (_revision(), _daemon_set(), _deployment(), _replica_set(), _stateful_set())


def _deployment() -> ServedResource:
    return kind(
        "Deployment",
        group=APPS,
        short_names=("deploy",),
        categories=("all",),
        has_status=True,
        scale=_SCALE,
        rules=Rules(
            shape="v1.Deployment",
            complete=workloads.complete_deployment,
            default=workloads.default_deployment,
            check=workload_checks.check_deployment,
            transition=workload_checks.check_selector_change,
            counts_generation=True,
            counts_annotations=True,
        ),
    )


def _replica_set() -> ServedResource:
    return kind(
        "ReplicaSet",
        group=APPS,
        short_names=("rs",),
        categories=("all",),
        has_status=True,
        scale=_SCALE,
        rules=Rules(
            shape="v1.ReplicaSet",
            complete=workloads.complete_replicas,
            default=workloads.default_replica_set,
            check=workload_checks.check_replica_set,
            transition=workload_checks.check_selector_change,
            check_status=workload_checks.check_counts,
            counts_generation=True,
        ),
    )


def _stateful_set() -> ServedResource:
    return kind(
        "StatefulSet",
        group=APPS,
        short_names=("sts",),
        categories=("all",),
        has_status=True,
        scale=_SCALE,
        rules=Rules(
            shape="v1.StatefulSet",
            complete=workloads.complete_stateful_set,
            default=workloads.default_stateful_set,
            check=workload_checks.check_stateful_set,
            transition=workload_checks.check_stateful_set_change,
            counts_generation=True,
        ),
    )


def _revision() -> ServedResource:
    return kind(
        "ControllerRevision",
        group=APPS,
        rules=Rules(
            shape="v1.ControllerRevision",
            default=small.default_revision,
            check=small.check_revision,
            transition=small.check_revision_change,
        ),
    )


def _daemon_set() -> ServedResource:
    return kind(
        "DaemonSet",
        group=APPS,
        short_names=("ds",),
        categories=("all",),
        has_status=True,
        rules=Rules(
            shape="v1.DaemonSet",
            complete=workloads.complete_daemon_set,
            default=workloads.default_daemon_set,
            keep=workloads.keep_daemon_set,
            check=workload_checks.check_daemon_set,
            transition=workload_checks.check_selector_change,
            counts_generation=True,
        ),
    )


def _batch() -> tuple[ServedResource, ...]:
    return (
        kind(
            "CronJob",
            group=BATCH,
            short_names=("cj",),
            categories=("all",),
            has_status=True,
            rules=Rules(
                shape="v1.CronJob",
                complete=jobs.complete_cron_job,
                default=jobs.default_cron_job,
                check=jobs.check_cron_job,
                counts_generation=True,
            ),
        ),
        kind(
            "Job",
            group=BATCH,
            categories=("all",),
            has_status=True,
            selectable=(SelectableField("status.successful", ("status", "succeeded"), "0"),),
            rules=Rules(
                shape="v1.Job",
                complete=jobs.complete_job,
                default=jobs.default_job,
                check=jobs.check_job,
                transition=jobs.check_job_change,
                counts_generation=True,
                orphans_by_default=True,
            ),
        ),
    )


def _core() -> tuple[ServedResource, ...]:
    return (
        kind(
            "PodTemplate",
            rules=Rules(
                shape="v1.PodTemplate",
                default=workloads.default_pod_template,
                check=workload_checks.check_pod_template,
                counts_generation=True,
                returns_deleted=True,
            ),
        ),
        kind(
            "ReplicationController",
            short_names=("rc",),
            categories=("all",),
            has_status=True,
            scale=_SCALE,
            selectable=(SelectableField("status.replicas", ("status", "replicas"), "0"),),
            rules=Rules(
                shape="v1.ReplicationController",
                complete=workloads.complete_replicas,
                default=workloads.default_replication_controller,
                check=workload_checks.check_replication_controller,
                check_status=workload_checks.check_counts,
                counts_generation=True,
                orphans_by_default=True,
            ),
        ),
    )


def _budget() -> ServedResource:
    return kind(
        "PodDisruptionBudget",
        group=POLICY,
        short_names=("pdb",),
        has_status=True,
        rules=Rules(
            shape="v1.PodDisruptionBudget",
            complete=disruption_budgets.complete,
            default=disruption_budgets.default,
            check=disruption_budgets.check,
            check_status=disruption_budgets.check_status,
            counts_generation=True,
            unconditional_update=False,
        ),
    )
