from __future__ import annotations

import copy
import functools
from typing import Any

import msgspec
import pytest
import yaml

from bramley.api import crds
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.meta import Object
from bramley.api.runner_pool import RunnerPool
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.api.tuist_cluster import TuistCluster
from bramley.apiserver.schema import structural
from tests.unit.api.oracle import accepts
from tests.unit.api.samples import LEAST, LIVE, SERVER, changed
from tests.unit.api.test_custom_kinds import BAD, BAD_TO_WRITE, GOOD, case
from tools import crds as generator

EXAMPLES = generator.ROOT / "examples"


def manifest_of(kind: str) -> dict[str, Any]:
    return next(one for one in crds.manifests() if one["spec"]["names"]["kind"] == kind)


def schema_of(kind: type[Object]) -> dict[str, Any]:
    version = manifest_of(kind.resource.kind)["spec"]["versions"][0]
    return dict(version["schema"]["openAPIV3Schema"])


@functools.cache
def compiled_schema(kind: type[Object]) -> structural.Structural:
    return structural.compile(schema_of(kind))


def rules_broken(kind: type[Object], body: dict[str, Any], old: Any = None) -> list[str]:
    """Return the messages of the rules that the object breaks, as the embedded server checks them."""
    compiled = compiled_schema(kind)
    before, after = (whole(kind, compiled, one) for one in (old, body))
    return [cause.message.rpartition(": ")[2] for cause in compiled.validate(after, before)]


def whole(kind: type[Object], compiled: structural.Structural, body: Any) -> Any:
    if body is None:
        return None
    head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    filled = copy.deepcopy({**head, "metadata": {"name": "sample"}, **body})
    compiled.apply_defaults(filled)
    return filled


def pool(**spec: Any) -> dict[str, Any]:
    return {"spec": {**LEAST[RunnerPool]["spec"], **spec}}


def machine(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


@pytest.mark.parametrize("path", generator.files(), ids=lambda path: path.name)
def test_committed_files_are_up_to_date(path: Any) -> None:
    assert path.read_text() == generator.files()[path], "run: python -m tools.crds"


def test_no_committed_definition_is_left_over() -> None:
    assert set((generator.ROOT / "crds").iterdir()) == set(generator.files()) - {generator.DOCUMENT}


def test_printed_stream_holds_every_definition() -> None:
    assert list(yaml.safe_load_all(crds.as_yaml(crds.manifests()))) == crds.manifests()


@pytest.mark.parametrize("manifest", crds.manifests(), ids=lambda one: one["metadata"]["name"])
def test_manifest_decodes_as_a_crd(manifest: dict[str, Any]) -> None:
    definition = msgspec.convert(manifest, CustomResourceDefinition)

    names = definition.spec.names
    assert definition.name == f"{names.plural}.{definition.spec.group}"
    assert names.list_kind == f"{names.kind}List"
    assert definition.spec.scope == "Namespaced"


@pytest.mark.parametrize(
    ("kind", "short", "category", "columns", "subresources"),
    [
        (
            "RunnerPool",
            "rpool",
            "tuist",
            ["Desired", "Ready", "Busy", "Stale", "Image", "Roll", "Age"],
            ["status", "scale"],
        ),
        (
            "ScalewayAppleSiliconMachine",
            "samm",
            "cluster-api",
            ["Phase", "ProviderID", "Ready", "Step", "Reason", "Age"],
            ["status"],
        ),
        (
            "MacHost",
            "mh",
            "tuist",
            ["Phase", "Address", "Ready", "Step", "Reason", "Age"],
            ["status"],
        ),
        ("ScalewayAppleSiliconMachineTemplate", "sammt", "cluster-api", ["Age"], []),
        ("TuistCluster", "tcl", "cluster-api", ["Endpoint", "Ready", "Age"], ["status"]),
    ],
)
def test_names_and_printer_columns_of_a_kind(
    kind: str, short: str, category: str, columns: list[str], subresources: list[str]
) -> None:
    spec = manifest_of(kind)["spec"]
    version = spec["versions"][0]

    shown = [one["name"] for one in version["additionalPrinterColumns"] if not one.get("priority")]
    assert (spec["names"]["shortNames"], spec["names"]["categories"]) == ([short], [category])
    assert shown == columns
    assert list(version.get("subresources", {})) == subresources


def test_infrastructure_kinds_keep_the_contract_of_cluster_api() -> None:
    labels = {one["metadata"]["name"]: one["metadata"].get("labels") for one in crds.manifests()}

    contract = {"cluster.x-k8s.io/v1beta1": "v1alpha1"}
    assert labels.pop("runnerpools.tuist.dev") is None
    assert labels.pop("machosts.tuist.dev") is None
    assert list(labels.values()) == 3 * [contract]


def test_scale_subresource_finds_its_paths() -> None:
    version = manifest_of("RunnerPool")["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]

    for path in version["subresources"]["scale"].values():
        part, name = path.strip(".").split(".")
        assert name in properties[part]["properties"]


FLOOR = "minWarmPoolFloor must not exceed maxReplicas"
CLASS = "runtimeClass is for linux pools only"
PAIR = "host and port are set together or not at all"

RULES: list[tuple[type[Object], dict[str, Any], list[str]]] = [
    (RunnerPool, pool(autoscaling={"enabled": True}), []),
    (
        RunnerPool,
        pool(autoscaling={"enabled": True, "minWarmPoolFloor": 3, "maxReplicas": 2}),
        [FLOOR],
    ),
    (RunnerPool, pool(autoscaling={"enabled": True, "maxReplicas": 1}), []),
    (RunnerPool, pool(autoscaling={"minWarmPoolFloor": 3}), []),
    (RunnerPool, pool(runtimeClass="kata-qemu"), [CLASS]),
    (RunnerPool, pool(runtimeClass=""), []),
    (RunnerPool, pool(runtimeClass="kata-qemu", os="linux"), []),
    (TuistCluster, {"spec": {"controlPlaneEndpoint": {"host": "a", "port": 0}}}, [PAIR]),
    (TuistCluster, {"spec": {"controlPlaneEndpoint": {"host": "", "port": 1}}}, [PAIR]),
]


@pytest.mark.parametrize(("kind", "body", "messages"), RULES)
def test_rules_across_fields(kind: type[Object], body: dict[str, Any], messages: list[str]) -> None:
    assert rules_broken(kind, body) == messages


def test_template_names_no_server() -> None:
    from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate as Template

    body = changed(LEAST[Template], "spec.template.spec.providerID", SERVER)

    assert rules_broken(Template, body) == ["a template cannot carry the providerID of one server"]


@pytest.mark.parametrize(("kind", "body"), LIVE)
def test_objects_of_existing_fleets_break_no_rule(kind: type[Object], body: dict[str, Any]) -> None:
    assert rules_broken(kind, body, old=body) == []


@pytest.mark.parametrize(("kind", "path", "value"), GOOD, ids=case)
def test_embedded_server_accepts_what_our_types_accept(
    kind: type[Object], path: str, value: object
) -> None:
    assert rules_broken(kind, changed(LEAST[kind], path, value)) == []


@pytest.mark.parametrize(("kind", "path", "value"), [*BAD, *BAD_TO_WRITE], ids=case)
def test_embedded_server_refuses_invalid_values(
    kind: type[Object], path: str, value: object
) -> None:
    assert rules_broken(kind, changed(LEAST[kind], path, value)) != []


@pytest.mark.parametrize("kind", LEAST, ids=case)
def test_embedded_server_accepts_our_schemas(kind: type[Object]) -> None:
    assert structural.check(schema_of(kind)) == []


OTHER_SERVER = SERVER.replace("6f9f", "0000")
FIXED = "providerID cannot change once set; it can only be cleared"


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        (machine(), machine(providerID=SERVER), []),
        (machine(providerID=SERVER), machine(providerID=SERVER), []),
        (machine(providerID=SERVER), machine(), []),
        (machine(providerID=SERVER), machine(providerID=OTHER_SERVER), [FIXED]),
    ],
    ids=["set", "kept", "cleared", "changed"],
)
def test_machine_keeps_its_server_until_it_is_cleared(
    old: dict[str, Any], new: dict[str, Any], messages: list[str]
) -> None:
    assert rules_broken(ScalewayAppleSiliconMachine, new, old=old) == messages


def test_pool_keeps_its_operating_system() -> None:
    message = "the operating system of a pool cannot change"

    assert rules_broken(RunnerPool, pool(os="linux"), old=pool()) == [message]
    assert rules_broken(RunnerPool, pool(os="darwin"), old=pool()) == []


def test_example_pool_is_valid() -> None:
    body = yaml.safe_load((EXAMPLES / "runnerpool.yaml").read_text())

    assert body["apiVersion"] == RunnerPool.resource.api_version
    assert accepts(schema_of(RunnerPool), body)
    assert rules_broken(RunnerPool, body) == []
    assert msgspec.convert(body, RunnerPool).spec.replicas >= 2


def test_example_configmap_is_one() -> None:
    body = yaml.safe_load((EXAMPLES / "configmap.yaml").read_text())

    assert (body["apiVersion"], body["kind"]) == ("v1", "ConfigMap")
    assert all(isinstance(value, str) for value in body["data"].values())
