"""`bramley apiserver --cluster-api`: machines are cloned and scaled by the small controllers, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.process.serving.processes import BRAMLEY, Bramley, clean_environment, running, until
from tests.process.threaded import in_a_thread
from tests.programs import run_program

INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io/v1alpha1"
CORE = "cluster.x-k8s.io/v1beta1"
MACHINES = f"/apis/{INFRASTRUCTURE}/namespaces/default/scalewayapplesiliconmachines"
DEPLOYMENTS = f"/apis/{CORE}/namespaces/default/machinedeployments"


def create(server: Bramley, version: str, kind: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "macs"}, "spec": spec}
    path = f"/apis/{version}/namespaces/default/{kind.lower()}s"
    # The definitions are installed by the controllers, a moment after the start.
    until(lambda: server.request("POST", path, body)[0] == 201)


def reference(kind: str) -> dict[str, str]:
    return {"apiVersion": INFRASTRUCTURE, "kind": kind, "name": "macs", "namespace": "default"}


def machines(server: Bramley) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.request("GET", MACHINES)[1].get("items", [])
    return found


@in_a_thread
def test_machines_are_cloned_and_scaled(tmp_path: Path) -> None:
    with running(tmp_path, "--cluster-api") as server:
        create(server, INFRASTRUCTURE, "TuistCluster", {})
        create(server, CORE, "Cluster", {"infrastructureRef": reference("TuistCluster")})
        kind = "ScalewayAppleSiliconMachineTemplate"
        create(server, INFRASTRUCTURE, kind, {"template": {"spec": {"fleetName": "demo"}}})
        machine = {"clusterName": "macs", "bootstrap": {"dataSecretName": "none"}, "infrastructureRef": reference(kind)}  # fmt: skip
        labels = {"cluster.x-k8s.io/cluster-name": "macs", "fleet": "demo"}
        template = {"metadata": {"labels": labels}, "spec": machine}
        spec = {"clusterName": "macs", "replicas": 1, "strategy": {"type": "OnDelete"}}
        spec |= {"selector": {"matchLabels": labels}, "template": template}
        create(server, CORE, "MachineDeployment", spec)

        [first] = until(lambda: machines(server))
        assert first["spec"]["fleetName"] == "demo"

    with running(tmp_path, "--cluster-api") as server:
        path = f"{DEPLOYMENTS}/macs/scale"
        scale = server.request("GET", path)[1]
        assert server.request("PUT", path, {**scale, "spec": {"replicas": 2}})[0] == 200
        names = until(lambda: len(machines(server)) == 2 and {each["metadata"]["name"] for each in machines(server)})  # fmt: skip
        assert first["metadata"]["name"] in names


def test_cluster_api_without_the_controllers_of_a_cluster_is_refused(tmp_path: Path) -> None:
    command = [BRAMLEY, "apiserver", "--cluster-api", "--no-controllers", "--data-dir", tmp_path]
    result = run_program([str(each) for each in command], env=clean_environment())

    assert result.returncode == 2
    assert "--cluster-api needs the controllers" in result.stderr
