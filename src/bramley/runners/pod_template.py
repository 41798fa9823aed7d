"""The Pod of a runner and its ServiceAccount; pure.

The ServiceAccount has the name of the Pod and identifies it to dispatch; both belong to the pool. The agent creates the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bramley.api import names
from bramley.api.core import ServiceAccount
from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.api.names import labels, runners
from bramley.api.pod import (
    Affinity,
    Container,
    EnvVar,
    EnvVarSource,
    FieldSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Toleration,
)
from bramley.api.runner_pool import RunnerPool
from bramley.runners.hosts import node_selector
from bramley.runners.pod_plan import PlannedPod
from bramley.runners.pods import pod_name, slot_text

_GOLDEN_WEIGHT = 100
_LABELS = {
    labels.APP_NAME: labels.APP_NAME_RUNNER,
    labels.APP_COMPONENT: labels.COMPONENT_RUNNER,
    labels.RUNNER: labels.TRUE,
}


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    """What Pods get from the flags of the controller; empty values are left out."""

    dispatch_url: str = ""
    cluster_dns_ip: str = ""
    cluster_domain: str = "cluster.local"


def service_account(pool: RunnerPool, planned: PlannedPod) -> ServiceAccount:
    """Return the ServiceAccount of a planned Pod."""
    return ServiceAccount(
        metadata=_metadata(pool, planned, {labels.RUNNER_POOL: pool.name}),
        automount_service_account_token=False,
    )


def pod(
    pool: RunnerPool,
    planned: PlannedPod,
    settings: TemplateSettings,
    *,
    avoid: Sequence[str] = (),
) -> Pod:
    """Return a planned Pod; `avoid` names hosts on which Pods of the pool keep failing."""
    spec = pool.spec
    pod_labels = {**_LABELS, labels.RUNNER_POOL: pool.name}
    return Pod(
        metadata=_metadata(pool, planned, pod_labels),
        spec=PodSpec(
            restart_policy="Never",
            service_account_name=pod_name(pool, planned.slot, planned.counter),
            automount_service_account_token=True,
            image_pull_secrets=list(spec.image_pull_secrets),
            node_selector=node_selector(spec.fleet_selector),
            tolerations=[
                Toleration(key=labels.MACOS_TAINT, operator="Exists", effect=labels.NO_SCHEDULE)
            ],
            affinity=_affinity(planned, avoid),
            containers=[
                Container(
                    name=runners.CONTAINER,
                    image=planned.pending.image,
                    env=_environment(pool, settings),
                    resources=_resources(pool),
                )
            ],
        ),
    )


def _metadata(pool: RunnerPool, planned: PlannedPod, own_labels: dict[str, str]) -> ObjectMeta:
    owner = OwnerReference(
        api_version=RunnerPool.resource.api_version,
        kind=RunnerPool.resource.kind,
        name=pool.name,
        uid=pool.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return ObjectMeta(
        name=pod_name(pool, planned.slot, planned.counter),
        namespace=pool.namespace,
        labels=own_labels,
        annotations={
            names.annotations.RUNNER_SLOT: slot_text(planned.slot, planned.counter),
            names.annotations.CREATED_FOR: planned.pending.created_for,
        },
        owner_references=[owner],
    )


def _affinity(planned: PlannedPod, avoid: Sequence[str]) -> Affinity:
    golden = NodeSelectorRequirement(key=labels.golden(planned.pending.image), operator="Exists")
    requirements = [golden] if planned.pending.required_golden else []
    if avoid:
        requirements.append(
            NodeSelectorRequirement(key=labels.HOSTNAME, operator="NotIn", values=list(avoid))
        )
    terms = [NodeSelectorTerm(match_expressions=requirements)]
    preferred = PreferredSchedulingTerm(
        weight=_GOLDEN_WEIGHT, preference=NodeSelectorTerm(match_expressions=[golden])
    )
    return Affinity(
        node_affinity=NodeAffinity(
            required=NodeSelector(node_selector_terms=terms) if requirements else None,
            preferred=[preferred],
        )
    )


def _resources(pool: RunnerPool) -> ResourceRequirements:
    amounts: dict[str, str | int | float] = {}
    if pool.spec.pod_cpu_milli:
        amounts["cpu"] = f"{pool.spec.pod_cpu_milli}m"
    if pool.spec.pod_memory_mb:
        amounts["memory"] = f"{pool.spec.pod_memory_mb}Mi"
    return ResourceRequirements(requests=amounts, limits=amounts)


def _environment(pool: RunnerPool, settings: TemplateSettings) -> list[EnvVar]:
    idle = pool.spec.idle_timeout_seconds
    values = {
        runners.ENV_DISPATCH_URL: settings.dispatch_url,
        runners.ENV_POOL: pool.name,
        runners.ENV_CLUSTER_DNS_IP: settings.cluster_dns_ip,
        runners.ENV_CLUSTER_DOMAIN: settings.cluster_domain if settings.cluster_dns_ip else "",
        runners.ENV_PRINT_LOG: "1",
        runners.ENV_IDLE_TIMEOUT: str(idle) if idle else "",
    }
    fields = {
        runners.ENV_POD_NAME: "metadata.name",
        runners.ENV_POD_UID: "metadata.uid",
    }
    return [
        *(EnvVar(name=name, value=value) for name, value in values.items() if value),
        *(
            EnvVar(name=name, value_from=EnvVarSource(field_ref=FieldSelector(field_path=path)))
            for name, path in fields.items()
        ),
    ]
