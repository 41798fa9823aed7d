"""Objects of our kinds for tests: minimal valid ones, and those of existing fleets."""

from __future__ import annotations

from typing import Any

from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.meta import Object
from bramley.api.runner_pool import RunnerPool
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.api.tuist_cluster import TuistCluster

SERVER = "scw-applesilicon://fr-par-1/6f9f6c2e-1c1b-4d8e-9d0c-0a4f6f1f2b11"

LEAST: dict[type[Object], dict[str, Any]] = {
    RunnerPool: {
        "spec": {
            "image": "ghcr.io/tuist/tuist-runner:macos-26-6-0.7.0",
            "fleetSelector": "runners",
            "dispatchLabel": "shape-macos-26-6",
            "runnerLabels": ["self-hosted", "macOS", "ARM64"],
        }
    },
    ScalewayAppleSiliconMachine: {"spec": {}},
    ScalewayAppleSiliconMachineTemplate: {"spec": {"template": {"spec": {}}}},
    TuistCluster: {"spec": {}},
}

BUILDER = {
    "type": "M2-L",
    "zone": "fr-par-1",
    "os": "Tahoe",
    "fleetName": "tuist-tuist-builders-fleet",
    "adoptPoolPrefix": "tuist-pool-",
    "ghActionsRunner": {
        "ghOrg": "tuist",
        "ghRunnerLabels": "self-hosted, macos,bare-metal , vm-image-builder",
        "ghRunnerVersion": "2.336.0",
        "ghAppSecretName": "tuist-tuist-builders-fleet-gh-app",
    },
}

LIVE: list[tuple[type[Object], dict[str, Any]]] = [
    *LEAST.items(),
    (ScalewayAppleSiliconMachine, {}),
    (TuistCluster, {}),
    (
        RunnerPool,
        {
            "spec": {
                "labels": [],
                "replicas": 9,
                "image": "ghcr.io/tuist/tuist-runner@sha256:" + 64 * "a",
                "fleetSelector": "tuist-tuist-runners-fleet",
                "dispatchLabel": "shape-macos-26-4-1",
                "runnerLabels": ["self-hosted", "macOS", "ARM64"],
                "os": "darwin",
                "podCPUMilli": 6000,
                "podMemoryMB": 14336,
                "idleTimeoutSeconds": 300,
                "autoscaling": {
                    "enabled": True,
                    "minWarmPoolFloor": 0,
                    "maxReplicas": 9,
                    "scaleDownCooldownSeconds": 300,
                },
                "rollout": {"maxConcurrentPercent": 5},
            },
            "status": {
                "observedReplicas": 9,
                "lastReconcile": "2026-06-19T12:00:00Z",
                "observedImage": "ghcr.io/tuist/tuist-runner@sha256:" + 64 * "a",
                "imageRolledAt": "2026-06-19T11:00:00Z",
            },
        },
    ),
    (
        RunnerPool,
        {
            "spec": {
                "image": "ghcr.io/tuist/tuist-runner-linux:1.2.3",
                "fleetSelector": "linux-runners",
                "dispatchLabel": "shape-linux-2vcpu-8gb",
                "runnerLabels": ["self-hosted", "Linux", "X64"],
                "os": "linux",
                "runtimeClass": "kata-qemu",
                "autoscaling": {"enabled": True, "minWarmPoolFloor": 12, "maxReplicas": 120},
                "provisioning": {"maxConcurrentPerFleetSelector": 4, "startTimeoutSeconds": 0},
            }
        },
    ),
    (
        ScalewayAppleSiliconMachine,
        {
            "spec": {**BUILDER, "providerID": SERVER, "hostCPU": 8, "hostMemoryMB": 14336},
            "status": {
                "ready": True,
                "serverID": "6f9f6c2e-1c1b-4d8e-9d0c-0a4f6f1f2b11",
                "addresses": [{"type": "ExternalIP", "address": "51.15.0.1"}],
                "phase": "Ready",
                "conditions": [
                    {
                        "type": "Bootstrapped",
                        "status": "False",
                        "severity": "Warning",
                        "reason": "NodeMissing",
                        "message": "the Node is gone",
                        "lastTransitionTime": "2026-06-19T12:00:00Z",
                    },
                    {
                        "type": "Provisioned",
                        "status": "True",
                        "lastTransitionTime": "2026-06-19T12:00:00Z",
                    },
                ],
                "hostConfigHash": 64 * "0",
                "tartKubeletUpdateAttempts": 2,
                "bootstrapRebootIssued": True,
            },
        },
    ),
    (ScalewayAppleSiliconMachineTemplate, {"spec": {"template": {"spec": BUILDER}}}),
    (TuistCluster, {"spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}}}),
    (TuistCluster, {"spec": {"controlPlaneEndpoint": {"host": "", "port": 0}}}),
]


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the object with one field, named by its dotted path, set to this value; `...` removes it."""
    head, _, rest = path.partition(".")
    if rest:
        return {**body, head: changed(body.get(head, {}), rest, value)}
    if value is ...:
        return {key: old for key, old in body.items() if key != head}
    return {**body, head: value}
