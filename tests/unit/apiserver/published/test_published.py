"""What we publish about a kind is what a real server publishes about it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bramley.apiserver.kinds import builtin_kinds, virtual
from bramley.apiserver.openapi.documents import Documents
from bramley.apiserver.registry import crds
from bramley.apiserver.registry.resources import Catalog
from bramley.apiserver.server import discovery
from tests.unit.apiserver.published.record import GROUP, definition, operations

Json = dict[str, Any]
# What only a cluster with kubelets has.
ELSEWHERE = {"proxy", "attach", "exec", "portforward", "log", "ephemeralcontainers", "resize"}


@cache
def recorded() -> Json:
    recorded: Json = json.loads((Path(__file__).parent / "recorded.json").read_text())
    return recorded


def a_catalog() -> Catalog:
    catalog = builtin_kinds.catalog()
    crd = definition()
    crds.admit(crd, None)
    catalog.install(crd)
    return catalog


def resources(groups: list[Json]) -> dict[tuple[str, str, str], Json]:
    return {
        (group["metadata"].get("name", ""), version["version"], each["resource"]): each
        for group in groups
        for version in group["versions"]
        for each in version["resources"]
    }


def ours() -> dict[tuple[str, str, str], Json]:
    catalog = a_catalog()
    groups = [
        group for root in ("api", "apis") for group in discovery.aggregated(root, catalog)["items"]
    ]
    # A metrics server brings that group; the recorded cluster has none.
    found = resources(json.loads(json.dumps(groups)))
    return {key: each for key, each in found.items() if key[0] != virtual.METRICS_GROUP}


def without_kubelets(resource: Json) -> Json:
    kept = [
        each for each in resource.get("subresources", ()) if each["subresource"] not in ELSEWHERE
    ]
    rest = {key: value for key, value in resource.items() if key != "subresources"}
    return {**rest, "subresources": kept} if kept else rest


@pytest.mark.parametrize("key", sorted(ours()), ids="/".join)
def test_discovery_of_a_resource_equals_kube_apiservers(key: tuple[str, str, str]) -> None:
    real = resources(recorded()["discovery"])

    assert without_kubelets(real[key]) == without_kubelets(ours()[key])


def test_versions_of_a_group_are_in_the_same_order() -> None:
    real = {each["metadata"].get("name"): each for each in recorded()["discovery"]}
    own = discovery.aggregated("apis", a_catalog())["items"]

    found = next(each for each in own if each["metadata"]["name"] == GROUP)
    expected = [each["version"] for each in real[GROUP]["versions"]]
    assert expected == [each["version"] for each in found["versions"]]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_schemas_of_a_custom_kind_equal_those_of_a_real_server(version: str) -> None:
    path = f"apis/{GROUP}/{version}"
    expected = recorded()["custom"][path]

    found = json.loads(Documents(a_catalog(), "1.34").document(path))["components"]["schemas"]

    kinds = {name for name in expected if name.startswith("com.example.")}
    assert {name: expected[name] for name in kinds} == {name: found[name] for name in kinds}


def test_references_between_schemas_resolve() -> None:
    documents = Documents(a_catalog(), "1.34")

    for path in json.loads(documents.index())["paths"]:
        text = documents.document(path).decode()
        schemas = json.loads(text)["components"]["schemas"]
        named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
        assert named <= schemas.keys(), path


def test_documents_are_subsets_of_those_of_a_real_server() -> None:
    documents = Documents(a_catalog(), "1.34")

    for path in json.loads(documents.index())["paths"].keys() - {
        f"apis/{virtual.METRICS_GROUP}/v1beta1"
    }:
        found = json.loads(documents.document(path))
        assert found["components"]["schemas"].keys() <= set(recorded()["schemas"][path]), path
        for name, methods in operations(found).items():
            real = recorded()["operations"][path][name]
            assert methods.items() <= real.items(), name


def test_every_patchable_kind_supports_dry_run() -> None:
    catalog = a_catalog()
    documents = Documents(catalog, "1.34")
    known = set()
    for path in json.loads(documents.index())["paths"]:
        for methods in json.loads(documents.document(path))["paths"].values():
            patch = methods.get("patch", {"parameters": []})
            names = {each["name"] for each in patch["parameters"]}
            if {"dryRun", "fieldValidation"} <= names:
                known.add(tuple(sorted(patch["x-kubernetes-group-version-kind"].items())))

    expected = {
        tuple(sorted({"group": each.group, "version": each.version, "kind": each.kind}.items()))
        for each in catalog
        if "patch" in each.verbs
    }
    assert expected <= known
