"""The objects of a fleet of rented Macs, of a builder, and of a pool of runners, as their owner writes them."""

from __future__ import annotations

from typing import Any

from bramley.api.cluster_api import MachineDeployment
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.meta import Object
from bramley.api.names import cluster_api as capi
from bramley.api.names import labels
from bramley.api.runner_pool import RunnerPool

# The namespace of Cluster API's objects and of the provider's Secrets and Leases, as in examples/machines-rbac.yaml.
NAMESPACE = "default"
RUNNERS_NAMESPACE = "tuist-runners"
CLUSTER = "c"
FLEET, BUILDERS, POOL = "macs", "builders", "macos"
RUNNER_TYPE, BUILDER_TYPE = "M2-L", "M4-M"
IMAGE = f"ghcr.io/example/macos-runner@sha256:{'1' * 64}"
# Not a label that the runner of a builder has by itself.
DISPATCH_LABEL = "macos-vm"
RUNNER_VERSION = "2.330.0"
APP_SECRET = "github-app"
ORGANISATION = "acme"


def _object(kind: type[Object], name: str, namespace: str, **body: Any) -> dict[str, Any]:
    resource = kind.resource
    metadata = {"name": name, "namespace": namespace, **body.pop("metadata", {})}
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": metadata, **body}


def fleet(name: str, *, replicas: int, **machine: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the template and the MachineDeployment of a fleet, in full: the core manager runs without its webhooks."""
    template = ScalewayAppleSiliconMachineTemplate
    labelled = {"labels": {labels.CAPI_CLUSTER: CLUSTER}}
    identity = {labels.CAPI_CLUSTER: CLUSTER, capi.DEPLOYMENT_NAME: name, labels.FLEET: name}
    spec = {
        "clusterName": CLUSTER,
        "bootstrap": {"dataSecretName": "noop"},
        "infrastructureRef": {
            "apiVersion": template.resource.api_version,
            "kind": template.resource.kind,
            "name": name,
            "namespace": NAMESPACE,
        },
    }
    deployment = {
        "clusterName": CLUSTER,
        "replicas": replicas,
        "strategy": {"type": "OnDelete"},
        "selector": {"matchLabels": identity},
        "template": {"metadata": {"labels": identity}, "spec": spec},
    }
    clone = {"template": {"spec": {"fleetName": name, **machine}}}
    return (
        _object(template, name, NAMESPACE, spec=clone, metadata=labelled),
        _object(MachineDeployment, name, NAMESPACE, spec=deployment, metadata=labelled),
    )


def builders() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a fleet of one builder."""
    runner = {
        "ghRunnerVersion": RUNNER_VERSION,
        "ghOrg": ORGANISATION,
        "ghRunnerLabels": "self-hosted,macos,vm-image-builder",
        "ghAppSecretName": APP_SECRET,
    }
    return fleet(BUILDERS, replicas=1, type=BUILDER_TYPE, ghActionsRunner=runner)


def pool(replicas: int) -> dict[str, Any]:
    """Return a pool whose runners need a whole Mac each."""
    spec = {
        "image": IMAGE,
        "fleetSelector": FLEET,
        "dispatchLabel": DISPATCH_LABEL,
        "runnerLabels": ["macOS"],
        "replicas": replicas,
        "podCPUMilli": 8000,
        "podMemoryMB": 4096,
    }
    return _object(RunnerPool, POOL, RUNNERS_NAMESPACE, spec=spec)
