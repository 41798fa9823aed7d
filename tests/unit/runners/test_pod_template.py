from __future__ import annotations

from typing import Any

import msgspec

from bramley.api.pod import LocalObjectReference
from bramley.api.runner_pool_status import PendingPod
from bramley.runners import pod_template
from bramley.runners.pod_plan import PlannedPod
from bramley.runners.pod_template import TemplateSettings
from tests.unit.runners.builders import NEW, OLD, a_pool

PLANNED = PlannedPod(3, 7, PendingPod(image=OLD, created_for="Turnover"))
SETTINGS = TemplateSettings("https://dispatch.example/api", "10.96.0.10", "cluster.local")
OWNER = {
    "apiVersion": "tuist.dev/v1alpha1",
    "kind": "RunnerPool",
    "name": "macos",
    "uid": "uid-macos",
    "controller": True,
    "blockOwnerDeletion": True,
}
GOLDEN = {"key": "tuist.dev/golden-1ef197decaccd88e", "operator": "Exists"}

SPEC = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": True,
    "nodeSelector": {
        "kubernetes.io/os": "darwin",
        "tuist.dev/runtime": "tart",
        "tuist.dev/fleet": "demo",
    },
    "tolerations": [{"key": "tuist.dev/macos", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": {"matchExpressions": [GOLDEN]}}
            ]
        }
    },
    "containers": [
        {
            "name": "runner",
            "image": OLD,
            "env": [
                {"name": "TUIST_RUNNER_DISPATCH_URL", "value": "https://dispatch.example/api"},
                {"name": "TUIST_RUNNER_POOL", "value": "macos"},
                {"name": "TUIST_CLUSTER_DNS_IP", "value": "10.96.0.10"},
                {"name": "TUIST_CLUSTER_DOMAIN", "value": "cluster.local"},
                {"name": "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT", "value": "1"},
                {"name": "TUIST_RUNNER_IDLE_TIMEOUT_SECONDS", "value": "300"},
                {
                    "name": "TUIST_RUNNER_POD_NAME",
                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                },
                {
                    "name": "TUIST_RUNNER_POD_UID",
                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}},
                },
            ],
            "resources": {
                "requests": {"cpu": "8000m", "memory": "14336Mi"},
                "limits": {"cpu": "8000m", "memory": "14336Mi"},
            },
        }
    ],
}


def wire(
    planned: PlannedPod = PLANNED, settings: TemplateSettings = SETTINGS, **spec: Any
) -> dict[str, Any]:
    avoid = spec.pop("avoid", ())
    pod = pod_template.pod(a_pool(spec=spec), planned, settings, avoid=avoid)
    return dict(msgspec.to_builtins(pod))


def test_pod_has_the_fields_that_existing_fleets_rely_on() -> None:
    pod = wire(idle_timeout_seconds=300, image_pull_secrets=[LocalObjectReference(name="ghcr")])

    assert pod["metadata"]["labels"] == {
        "app.kubernetes.io/name": "tuist-runner",
        "app.kubernetes.io/component": "runner",
        "tuist.dev/runner": "true",
        "tuist.dev/runner-pool": "macos",
    }
    assert pod["metadata"]["annotations"] == {
        "tuist.dev/runner-slot": "3/7",
        "tuist.dev/created-for": "Turnover",
    }
    assert pod["metadata"]["ownerReferences"] == [OWNER]
    assert pod["metadata"]["namespace"] == "tuist-runners"
    assert pod["spec"] == SPEC | {
        "serviceAccountName": pod["metadata"]["name"],
        "imagePullSecrets": [{"name": "ghcr"}],
    }


def test_service_account_has_the_name_of_the_pod_and_mounts_no_token() -> None:
    account = msgspec.to_builtins(pod_template.service_account(a_pool(), PLANNED))

    assert account["metadata"]["name"] == wire()["metadata"]["name"]
    assert account["metadata"]["labels"] == {"tuist.dev/runner-pool": "macos"}
    assert account["metadata"]["ownerReferences"] == [OWNER]
    assert account["automountServiceAccountToken"] is False


def test_settings_that_are_empty_leave_no_variable() -> None:
    pod = wire(settings=TemplateSettings())

    assert [each["name"] for each in pod["spec"]["containers"][0]["env"]] == [
        "TUIST_RUNNER_POOL",
        "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT",
        "TUIST_RUNNER_POD_NAME",
        "TUIST_RUNNER_POD_UID",
    ]


def test_idle_timeout_of_zero_means_never() -> None:
    names = [each["name"] for each in wire(idle_timeout_seconds=0)["spec"]["containers"][0]["env"]]

    assert "TUIST_RUNNER_IDLE_TIMEOUT_SECONDS" not in names


def test_size_of_zero_is_left_to_the_image() -> None:
    container = wire(pod_cpu_milli=0, pod_memory_mb=0)["spec"]["containers"][0]

    assert not any(container.get("resources", {}).values())


def test_required_staging_and_hosts_to_avoid_are_mandatory() -> None:
    planned = PlannedPod(
        0, 1, PendingPod(image=NEW, created_for="Replacement", required_golden=True)
    )

    affinity = wire(planned, avoid=("mac-3",))["spec"]["affinity"]["nodeAffinity"]

    expressions = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    golden = affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["preference"]
    assert expressions == [
        {
            "matchExpressions": [
                *golden["matchExpressions"],
                {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["mac-3"]},
            ]
        }
    ]
