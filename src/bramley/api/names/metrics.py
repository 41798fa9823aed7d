"""Metrics that dashboards and alerts of existing fleets read: names, types, labels and buckets.

The runtime's own metrics are declared where they are counted; this is only what others rely on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One series of the contract."""

    name: str
    type: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def gauge(name: str, *labels: str) -> Metric:
    """Name a gauge."""
    return Metric(name, "gauge", labels)


def counter(name: str, *labels: str) -> Metric:
    """Name a counter."""
    return Metric(name, "counter", labels)


def histogram(name: str, *labels: str, buckets: tuple[float, ...]) -> Metric:
    """Name a histogram."""
    return Metric(name, "histogram", labels, buckets)


# The pool controller: rolls.
POOL_ROLLING_PODS = gauge("tuist_runners_pool_rolling_pods", "pool")
POOL_STALE_PODS = gauge("tuist_runners_pool_stale_pods", "pool")
POOL_ROLL_CONCURRENCY_CAP = gauge("tuist_runners_pool_roll_concurrency_cap", "pool")

POOL_ROLL_PHASE = gauge("tuist_runners_pool_roll_phase", "pool", "phase")
POOL_STAGED_HOSTS = gauge("tuist_runners_pool_staged_hosts", "pool")
POOL_CANARY_VERDICTS = counter("tuist_runners_pool_canary_verdicts_total", "pool", "verdict")
ROLL_BUCKETS = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 43200.0, 86400.0, 172800.0)
POOL_ROLL_DURATION = histogram(
    "tuist_runners_pool_roll_duration_seconds", "pool", buckets=ROLL_BUCKETS
)
POOL_ROLL_AGE = gauge("tuist_runners_pool_roll_age_seconds", "pool")
POOL_LOWEST_WARM = gauge("tuist_runners_pool_roll_lowest_ready_pods", "pool")

# The pool controller: Pods and fleets.
POOL_OLDEST_TERMINATING = gauge("tuist_runners_pool_oldest_terminating_pod_age_seconds", "pool")
POOL_WARM_DEFICIT = gauge("tuist_runners_pool_warm_deficit_replicas", "pool")
SESSION_REPORT_FAILURES = counter("tuist_runners_session_report_failures_total")
POOL_PHASE_REPLICAS = gauge("tuist_runners_pool_phase_replicas", "pool", "phase")
POOL_OLDEST_PENDING = gauge("tuist_runners_pool_oldest_pending_pod_age_seconds", "pool")
POOL_IDLE_REPLICAS = gauge("tuist_runners_pool_idle_replicas", "pool")
POOL_PENDING_PROVISIONING = gauge("tuist_runners_pool_pending_provisioning_pods", "pool")
POOL_ADMISSION_BLOCKED = counter("tuist_runners_pool_admission_blocked_total", "pool", "reason")
POOL_START_TIMEOUTS = counter("tuist_runners_pool_pod_start_timeouts_total", "pool", "reason")
FLEET_READY_NODES = gauge("tuist_runners_fleet_ready_nodes", "fleet_selector", "operating_system")
FLEET_FILTERED_NODES = gauge(
    "tuist_runners_fleet_filtered_nodes", "fleet_selector", "operating_system", "reason"
)

# The autoscaler.
AUTOSCALER_TARGET = gauge("tuist_runners_autoscaler_target_replicas", "pool")
AUTOSCALER_ALLOCATED = gauge("tuist_runners_autoscaler_allocated_replicas", "pool")
AUTOSCALER_WARM_DEFICIT = gauge("tuist_runners_autoscaler_warm_deficit_replicas", "pool")
AUTOSCALER_MIN_WARM_FLOOR = gauge("tuist_runners_autoscaler_min_warm_floor_replicas", "pool")
AUTOSCALER_CLAIMED_JOBS = gauge("tuist_runners_autoscaler_claimed_jobs", "pool")
AUTOSCALER_OCCUPIED_RUNNERS = gauge("tuist_runners_autoscaler_occupied_runners", "pool")
AUTOSCALER_QUEUED_JOBS = gauge("tuist_runners_autoscaler_queued_jobs", "pool")

# The agent: VMs.
BOOT_BUCKETS = (10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 600.0)
SOON_BUCKETS = (1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0)
PROVISION_BUCKETS = (*SOON_BUCKETS, 1200.0, 1800.0, 3600.0)
VM_BOOT_DURATION = histogram("tart_kubelet_vm_boot_duration_seconds", "pool", buckets=BOOT_BUCKETS)
VM_BOOT_TIMEOUTS = counter("tart_kubelet_vm_boot_timeouts_total", "pool")
POD_PROVISION_DELAY = histogram(
    "tart_kubelet_pod_provision_delay_seconds", "pool", buckets=PROVISION_BUCKETS
)
VM_PROVISION_WORK = histogram(
    "tart_kubelet_vm_provision_work_seconds", "pool", "path", buckets=PROVISION_BUCKETS
)
# The last bound is the deadline.
CLONE_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
CLONE_DURATION = histogram("tart_kubelet_clone_duration_seconds", "result", buckets=CLONE_BUCKETS)
GOLDEN_BASE_MATERIALIZED = counter("tart_kubelet_golden_base_materialized_total", "pool")
GOLDEN_BASE_REUSED = counter("tart_kubelet_golden_base_reused_total", "pool")
GUEST_DISK_USAGE = gauge("tart_kubelet_guest_disk_usage_percent", "vm")
TART_TIMEOUTS = counter("tart_kubelet_tart_timeouts_total", "operation")
IMAGE_PULLS = counter("tart_kubelet_image_pulls_total", "result")
IMAGE_PULL_DURATION = histogram(
    "tart_kubelet_image_pull_duration_seconds", buckets=PROVISION_BUCKETS
)
TOKEN_RENEWALS = counter("tart_kubelet_token_renewals_total", "result")

# The agent: cache volumes per account, an optional part.
CACHE_OUTCOME = counter("tart_kubelet_cache_volume_outcome_total", "outcome")
CACHE_MATERIALIZE = counter("tart_kubelet_cache_volume_materialize_total", "result")
CACHE_PROMOTE = counter("tart_kubelet_cache_volume_promote_total", "result")
CACHE_CONVERGED = counter("tart_kubelet_cache_volume_converged_total")
CACHE_ADMISSION_DECLINED = counter("tart_kubelet_cache_volume_admission_declined_total")
CACHE_RESIDENT = gauge("tart_kubelet_cache_volume_resident_count")
CACHE_ROOT_FREE = gauge("tart_kubelet_cache_volume_root_free_bytes")
CACHE_ENABLED = gauge("tart_kubelet_cache_volume_enabled")
CACHE_ROOT_MOUNTED = gauge("tart_kubelet_cache_volume_root_mounted")
CACHE_UPLOAD = histogram(
    "tart_kubelet_cache_volume_upload_seconds",
    buckets=(0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
CACHE_FILL = histogram(
    "tart_kubelet_cache_volume_fill_percent",
    buckets=(25.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 93.0, 95.0, 97.0, 99.0, 100.0),
)

# The embedded API. Those of requests have the names and labels of a kube-apiserver, for dashboards that read its own.
_REQUEST = ("verb", "group", "version", "resource", "subresource", "scope")
ANSWER_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
API_REQUESTS = counter("apiserver_request_total", *_REQUEST, "code")
API_REQUEST_DURATION = histogram(
    "apiserver_request_duration_seconds", *_REQUEST, buckets=ANSWER_BUCKETS
)
API_IN_FLIGHT = gauge("bramley_api_requests_in_flight", "lane")
API_WATCHERS = gauge("bramley_api_watchers", "resource")
STORE_REVISION = gauge("bramley_store_revision")
STORE_OBJECTS = gauge("bramley_store_objects", "resource")
STORE_FILE_BYTES = gauge("bramley_store_file_bytes", "file")
STORE_PENDING_WRITES = gauge("bramley_store_pending_writes")
STORE_COMMIT_DURATION = histogram("bramley_store_commit_duration_seconds", buckets=ANSWER_BUCKETS)
STORE_COMMIT_FAILURES = counter("bramley_store_commit_failures_total")
STORE_DAMAGED_OBJECTS = gauge("bramley_store_damaged_objects", "resource")
STORE_MISFIT_OBJECTS = gauge("bramley_store_misfit_objects", "resource")
AUDIT_LINES = counter("bramley_audit_lines_total")
AUDIT_LINES_LOST = counter("bramley_audit_lines_lost_total")

# The provider.
MACHINE_PHASE = gauge(
    "capt_scaleway_applesilicon_machine_phase", "machine", "fleet", "phase", "failure_reason"
)
ORPHAN_SERVERS = gauge("scaleway_orphan_servers")
ORPHAN_SERVERS_RECLAIMED = counter("scaleway_orphan_servers_reclaimed_total")

# The provider: rented hosts by what they can do, and operations on hosts.
HOSTS = gauge("bramley_machines_hosts", "zone", "type", "state")
QUARANTINED_HOSTS = gauge("bramley_machines_quarantined_hosts")
HOST_SWEEP_FAILURES = counter("bramley_machines_host_sweep_failures_total", "step")
HOST_OPERATIONS = gauge("bramley_machines_host_operations", "operation", "state")
OPERATION_BUCKETS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)
HOST_OPERATION_DURATION = histogram(
    "bramley_machines_host_operation_duration_seconds",
    "operation",
    "result",
    buckets=OPERATION_BUCKETS,
)

# Dispatch: counters. Their names end in _count, although client libraries append _total by default.
JOB_ENQUEUED = counter("tuist_runners_job_enqueued_count", "fleet")
JOB_CLAIM = counter("tuist_runners_job_claim_count", "fleet", "outcome")
JOB_RUNNING = counter("tuist_runners_job_running_count", "fleet")
JOB_COMPLETED = counter("tuist_runners_job_completed_count", "fleet", "conclusion")
JOB_REQUEUED = counter("tuist_runners_job_requeued_count", "fleet")
DISPATCH_REQUEST = counter("tuist_runners_dispatch_request_count", "fleet", "outcome")
DISPATCH_HELD_POLLS = gauge("tuist_runners_dispatch_held_polls")
DISPATCH_ACCOUNTS_FILE_VALID = gauge("tuist_runners_dispatch_accounts_file_valid")
DISPATCH_AFFINITY = counter("tuist_runners_dispatch_affinity_count", "fleet", "outcome")
WEBHOOK = counter("tuist_runners_webhook_count", "action", "outcome")
RECOVERY = counter("tuist_runners_recovery_count", "kind")
# Requests that were refused or failed, of every endpoint.
REFUSED_REQUEST = counter("tuist_runners_refused_request_count", "endpoint", "reason")

# Dispatch: durations in milliseconds, because the existing panels read them so.
WAIT_BUCKETS = (50.0, 100.0, 250.0, 500.0, 1e3, 2e3, 5e3, 10e3, 30e3, 60e3, 120e3, 300e3)
RUN_BUCKETS = (1e3, 10e3, 30e3, 60e3, 300e3, 600e3, 1_800e3, 3_600e3, 10_800e3, 21_600e3)
REQUEST_BUCKETS = (10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 10e3)
JOB_QUEUE_TIME = histogram("tuist_runners_job_queue_time", "fleet", buckets=WAIT_BUCKETS)
JOB_QUEUE_TO_RUNNING = histogram(
    "tuist_runners_job_queue_to_running_time", "fleet", buckets=WAIT_BUCKETS
)
JOB_CLAIM_TO_RUNNING = histogram(
    "tuist_runners_job_claim_to_running_time", "fleet", buckets=WAIT_BUCKETS
)
JOB_RUN_TIME = histogram("tuist_runners_job_run_time", "fleet", buckets=RUN_BUCKETS)
JOB_TOTAL_TIME = histogram("tuist_runners_job_total_time", "fleet", buckets=RUN_BUCKETS)
DISPATCH_REQUEST_DURATION = histogram(
    "tuist_runners_dispatch_request_duration", "fleet", buckets=REQUEST_BUCKETS
)
RECOVERY_STRANDED_TIME = histogram(
    "tuist_runners_recovery_stranded_time", "kind", buckets=RUN_BUCKETS
)

# Dispatch: gauges. Each server process reports its own, so panels take the greatest by fleet.
QUEUE_LENGTH = gauge("tuist_runners_queue_length", "fleet")
QUEUE_OLDEST_AGE = gauge("tuist_runners_queue_oldest_age_seconds", "fleet")
QUEUE_WITHHELD = gauge("tuist_runners_queue_withheld", "fleet")
CLAIMS = gauge("tuist_runners_claims_count", "fleet", "lifecycle_state")
POOL_REPLICAS_DESIRED = gauge("tuist_runners_pool_replicas_desired", "fleet")
POOL_REPLICAS_OBSERVED = gauge("tuist_runners_pool_replicas_observed", "fleet")
POOL_REPLICAS_MAX = gauge("tuist_runners_pool_replicas_max", "fleet")
SESSION_CLAMPED = gauge("tuist_runners_session_clamped_count")
REPLICA_DIVERGENCE = gauge("tuist_runners_replica_divergence_count")
