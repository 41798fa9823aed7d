"""The sample fleets of `bramley up --bootstrap`: rented Macs whose runners the sample pool manages, and one builder.

They are created once; what a user changes or deletes stays so. Another number of Macs on the command line scales the deployment.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bramley.api.cluster_api import Cluster, MachineDeployment
from bramley.api.core import Secret
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.meta import Object
from bramley.api.names import cluster_api as names
from bramley.api.names import labels, machines, secrets
from bramley.api.tuist_cluster import TuistCluster
from bramley.apiserver.pki import private_files
from bramley.app import sample_images
from bramley.app.pools import NAMESPACE
from bramley.app.sample_dispatch import GitHubApp
from bramley.base import errors
from bramley.kube.client import Client

CLUSTER = "macs"
MACS = "macs"
BUILDERS = "builders"
# Its servers differ from the others by their type.
BUILDER_TYPE = "M4-M"
RUNNER_VERSION = "2.330.0"
_APP_SECRET = "github-app"  # noqa: S105 - the name of an object
# Nothing is read from it: the host is bootstrapped over SSH.
_NO_DATA = "none"
_FIELD_MANAGER = "bramley"


@dataclass(frozen=True, slots=True)
class SampleFleets:
    """The fleets of one server; the file records that they were created, and how many Macs were requested."""

    mark: Path
    macs: int

    async def create(self, kube: Client, app: GitHubApp) -> None:
        """Create the objects at the first start, and scale the Macs if another number is requested than before."""
        # At each start: the simulated GitHub may have changed its key.
        await _apply_app(kube, app)
        before = (private_files.read(self.mark) or b"").decode()
        if not before:
            for body in _objects(self.macs, app.organisation):
                kind = _KINDS[body["kind"]]
                with suppress(errors.AlreadyExists):
                    await kube.create_wire(kind.resource, body, namespace=NAMESPACE)
        elif before != str(self.macs):
            with suppress(errors.NotFound):
                await kube.scale(MachineDeployment, MACS, namespace=NAMESPACE, replicas=self.macs)
        private_files.write(self.mark, str(self.macs).encode())


_KINDS: Mapping[str, type[Object]] = {
    kind.resource.kind: kind
    for kind in (TuistCluster, Cluster, ScalewayAppleSiliconMachineTemplate, MachineDeployment)
}


def _objects(macs: int, organisation: str) -> Iterator[dict[str, Any]]:
    yield _object(TuistCluster, CLUSTER, {})
    yield _object(Cluster, CLUSTER, {"infrastructureRef": _reference(TuistCluster, CLUSTER)})
    yield from _fleet(MACS, macs, {"fleetName": sample_images.FLEET})
    runner = {
        "ghOrg": organisation,
        "ghRunnerVersion": RUNNER_VERSION,
        "ghRunnerLabels": machines.DEFAULT_RUNNER_LABELS,
        "ghAppSecretName": _APP_SECRET,
    }
    builder = {"fleetName": BUILDERS, "type": BUILDER_TYPE, "ghActionsRunner": runner}
    yield from _fleet(BUILDERS, 1, builder)


def _fleet(name: str, replicas: int, spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the template of machines and their deployment."""
    template = ScalewayAppleSiliconMachineTemplate
    yield _object(template, name, {"template": {"spec": spec}})
    identity = {labels.CAPI_CLUSTER: CLUSTER, names.DEPLOYMENT_NAME: name}
    machine = {
        "clusterName": CLUSTER,
        "bootstrap": {"dataSecretName": _NO_DATA},
        "infrastructureRef": _reference(template, name),
    }
    deployment = {
        "clusterName": CLUSTER,
        "replicas": replicas,
        "strategy": {"type": "OnDelete"},
        "selector": {"matchLabels": identity},
        "template": {"metadata": {"labels": identity}, "spec": machine},
    }
    yield _object(MachineDeployment, name, deployment)


def _object(kind: type[Object], name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {labels.CAPI_CLUSTER: CLUSTER}}
    resource = kind.resource
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**head, "metadata": metadata, "spec": spec}


def _reference(kind: type[Object], name: str) -> dict[str, str]:
    head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    return {**head, "name": name, "namespace": NAMESPACE}


async def _apply_app(kube: Client, app: GitHubApp) -> None:
    values = {
        secrets.APP_ID: app.app_id.encode(),
        secrets.INSTALLATION_ID: str(app.installation_id).encode(),
        secrets.PRIVATE_KEY: app.private_key_file.read_bytes(),
    }
    data = {key: base64.b64encode(value).decode() for key, value in values.items()}
    body = {"type": "Opaque", "data": data}
    await kube.apply(
        Secret, _APP_SECRET, body, manager=_FIELD_MANAGER, force=True, namespace=NAMESPACE
    )
