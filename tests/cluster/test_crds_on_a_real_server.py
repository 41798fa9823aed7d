"""Our CustomResourceDefinitions on a real API server: installed without a warning, and refusing what our types refuse."""

from __future__ import annotations

import itertools
import json
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bramley.api import crds, schema
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.meta import Object
from bramley.api.runner_pool import RunnerPool
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from tests.cluster.raw_api import RawApi
from tests.unit.api.oracle import completed
from tests.unit.api.samples import LEAST, LIVE, SERVER, changed
from tests.unit.api.test_crds import OTHER_SERVER, RULES
from tests.unit.api.test_custom_kinds import BAD, GOOD, case
from tools.kube.control_plane import RealCluster

ROOT = Path(__file__).parents[2]
NAMESPACE = "samples-of-custom-kinds"
NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Samples:
    """Puts objects of our kinds onto the real server."""

    raw: RawApi

    def create(self, kind: type[Object], body: dict[str, Any]) -> Any:
        resource = kind.resource
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        whole = {**head, "metadata": {"name": f"sample-{next(NUMBERS)}"}, **body}
        return self.raw.send("POST", resource.path(NAMESPACE), whole)

    def patch(self, kind: type[Object], name: str, patch: object, part: str | None = None) -> Any:
        path = kind.resource.path(NAMESPACE, name, part)
        return self.raw.send("PATCH", path, patch, "merge-patch+json")

    def refusal(self, kind: type[Object], body: dict[str, Any]) -> str:
        """Return why the server refuses to hold the object, or nothing; its status is written as a controller would."""
        try:
            made = self.create(kind, {key: one for key, one in body.items() if key != "status"})
            if "status" in body:
                name = made["metadata"]["name"]
                self.patch(kind, name, {"status": body["status"]}, "status")
        except urllib.error.HTTPError as error:
            if error.code != 422:
                raise
            return str(json.loads(error.read())["message"])
        return ""


@pytest.fixture(scope="module")
def api(real_cluster: RealCluster) -> Iterator[Samples]:
    real_cluster.kubectl("apply", "--warnings-as-errors", "-f", str(ROOT / "crds"))
    real_cluster.kubectl("create", "namespace", NAMESPACE)
    served = Samples(RawApi(real_cluster))
    deadline = time.monotonic() + 180
    for custom in crds.KINDS:
        while not answers(served, custom.kind):
            assert time.monotonic() < deadline, f"{custom.name} is not served"
            time.sleep(0.1)
    yield served
    real_cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def answers(api: Samples, kind: type[Object]) -> bool:
    try:
        api.raw.send("GET", kind.resource.path(NAMESPACE))
    except urllib.error.HTTPError:
        return False
    return True


@pytest.mark.parametrize("custom", crds.KINDS, ids=lambda custom: custom.kind.__name__)
def test_definition_is_established_without_warnings(api: Samples, custom: crds.CustomKind) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{custom.name}"

    status = api.raw.send("GET", path)["status"]

    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert "NonStructuralSchema" not in conditions


@pytest.mark.parametrize(("kind", "body"), LIVE, ids=case)
def test_objects_of_existing_fleets_are_accepted(
    api: Samples, kind: type[Object], body: dict[str, Any]
) -> None:
    assert api.refusal(kind, body) == ""


@pytest.mark.parametrize(("kind", "path", "value"), GOOD, ids=case)
def test_bounds_of_a_range_are_accepted(
    api: Samples, kind: type[Object], path: str, value: object
) -> None:
    assert api.refusal(kind, changed(LEAST[kind], path, value)) == ""


@pytest.mark.parametrize(("kind", "path", "value"), BAD, ids=case)
def test_server_refuses_what_our_types_refuse(
    api: Samples, kind: type[Object], path: str, value: object
) -> None:
    refusal = api.refusal(kind, changed(LEAST[kind], path, value))

    assert path.rpartition(".")[2] in refusal


@pytest.mark.parametrize(("kind", "body", "messages"), RULES)
def test_rules_across_fields_are_enforced(
    api: Samples, kind: type[Object], body: dict[str, Any], messages: list[str]
) -> None:
    refusal = api.refusal(kind, body)

    assert [message for message in messages if message not in refusal] == []
    assert bool(refusal) == bool(messages)


@pytest.mark.parametrize("kind", LEAST, ids=case)
def test_the_server_stores_the_defaults_that_our_types_have(
    api: Samples, kind: type[Object]
) -> None:
    stored = api.create(kind, LEAST[kind])

    assert stored["spec"] == completed(schema.of_kind(kind), LEAST[kind])["spec"]
    assert msgspec.convert({"spec": stored["spec"]}, kind) == msgspec.convert(LEAST[kind], kind)


def test_a_template_that_names_a_server_is_refused(api: Samples) -> None:
    template = ScalewayAppleSiliconMachineTemplate
    body = changed(LEAST[template], "spec.template.spec.providerID", SERVER)

    assert "a template cannot carry the providerID" in api.refusal(template, body)


def test_machine_changes_its_server_only_after_clearing_it(api: Samples) -> None:
    kind = ScalewayAppleSiliconMachine
    name = api.create(kind, {"spec": {"providerID": SERVER}})["metadata"]["name"]

    with pytest.raises(urllib.error.HTTPError, match="422"):
        api.patch(kind, name, {"spec": {"providerID": OTHER_SERVER}})
    api.patch(kind, name, {"spec": {"providerID": None}})
    after = api.patch(kind, name, {"spec": {"providerID": OTHER_SERVER}})

    assert after["spec"]["providerID"] == OTHER_SERVER


def test_a_pool_keeps_its_operating_system(api: Samples) -> None:
    name = api.create(RunnerPool, LEAST[RunnerPool])["metadata"]["name"]

    with pytest.raises(urllib.error.HTTPError, match="422"):
        api.patch(RunnerPool, name, {"spec": {"os": "linux"}})


def test_a_pool_is_scaled_through_its_subresource(api: Samples) -> None:
    name = api.create(RunnerPool, LEAST[RunnerPool])["metadata"]["name"]
    status = {"observedReplicas": 2, "selector": "a=b"}
    api.patch(RunnerPool, name, {"status": status}, "status")

    scale = api.patch(RunnerPool, name, {"spec": {"replicas": 4}}, "scale")

    assert scale["spec"] == {"replicas": 4}
    assert scale["status"] == {"replicas": 2, "selector": "a=b"}


def test_two_conditions_of_one_type_are_refused(api: Samples) -> None:
    twice = 2 * [{"type": "Ready", "status": "True"}]

    refusal = api.refusal(RunnerPool, {**LEAST[RunnerPool], "status": {"conditions": twice}})

    assert "Duplicate value" in refusal


def examples() -> list[Path]:
    """Return the examples; the suite of Cluster API applies those of its kinds, beside its core manager."""
    found = sorted((ROOT / "examples").glob("*.yaml"))
    return [each for each in found if "apiVersion: cluster.x-k8s.io/" not in each.read_text()]


@pytest.mark.parametrize("example", examples(), ids=lambda p: p.name)
def test_example_is_accepted_unchanged(api: Samples, example: Path) -> None:
    documents = list(yaml.safe_load_all(example.read_text()))
    for name in {each["metadata"].get("namespace", "default") for each in documents}:
        # For real: a dry run of what is in a namespace needs the namespace.
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        api.raw.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(namespace))

    api.raw.cluster.kubectl("apply", "--dry-run=server", "--warnings-as-errors", "-f", str(example))
