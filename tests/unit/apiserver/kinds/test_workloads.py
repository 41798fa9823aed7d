"""Kinds that make Pods: the rules that their controllers rely on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.world import Json, World

APPS = "/apis/apps/v1/namespaces/t"
KINDS = ("deployments", "replicasets", "statefulsets", "daemonsets")


def a_workload(name: str = "a", **spec: Any) -> Json:
    template = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    selector = {"matchLabels": {"x": "y"}}
    return {
        "metadata": {"name": name},
        "spec": {"selector": selector, "template": template, **spec},
    }


@pytest.mark.parametrize("kind", KINDS)
async def test_selector_must_match_the_template(world: World, kind: str) -> None:
    body = a_workload(selector={"matchLabels": {"x": "z"}})

    refused = await world.request("POST", f"{APPS}/{kind}", body)

    assert refused.causes == [("spec.template.metadata.labels", "FieldValueInvalid")]


@pytest.mark.parametrize("kind", ["deployments", "replicasets", "daemonsets"])
async def test_a_selector_never_changes(world: World, kind: str) -> None:
    body = a_workload()
    body["spec"]["template"]["metadata"]["labels"]["z"] = "w"
    await world.create(f"{APPS}/{kind}", body)

    patch = {"spec": {"selector": {"matchLabels": {"z": "w"}}}}
    refused = await world.merge(f"{APPS}/{kind}/a", patch)

    assert refused.causes == [("spec.selector", "FieldValueInvalid")]


@pytest.mark.parametrize("kind", KINDS)
async def test_writing_the_status_is_no_new_generation(world: World, kind: str) -> None:
    await world.create(f"{APPS}/{kind}", a_workload())

    status = {"status": {"observedGeneration": 1}}
    written = (await world.merge(f"{APPS}/{kind}/a/status", status)).json
    grown = (await world.merge(f"{APPS}/{kind}/a", {"spec": {"minReadySeconds": 1}})).json

    assert (written["metadata"]["generation"], grown["metadata"]["generation"]) == (1, 2)
    assert grown["status"]["observedGeneration"] == 1


async def test_annotations_of_a_deployment_count_as_a_change(world: World) -> None:
    for kind in ("deployments", "replicasets"):
        await world.create(f"{APPS}/{kind}", a_workload())
        await world.merge(f"{APPS}/{kind}/a", {"metadata": {"annotations": {"a": "b"}}})

    found = [(await world.get(f"{APPS}/{kind}/a")).json for kind in ("deployments", "replicasets")]

    assert [each["metadata"]["generation"] for each in found] == [2, 1]


@pytest.mark.parametrize("kind", ["deployments", "replicasets", "statefulsets"])
async def test_scaling_writes_the_replicas_and_shows_the_selector(world: World, kind: str) -> None:
    await world.create(f"{APPS}/{kind}", a_workload())

    scaled = await world.merge(f"{APPS}/{kind}/a/scale", {"spec": {"replicas": 3}})

    assert scaled.json["status"]["selector"] == "x=y"
    found = (await world.get(f"{APPS}/{kind}/a")).json
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (3, 2)


async def test_template_gets_defaults_and_no_pod_admission(world: World) -> None:
    made = (await world.create(f"{APPS}/replicasets", a_workload())).json

    spec = made["spec"]["template"]["spec"]
    assert (spec["restartPolicy"], spec["dnsPolicy"]) == ("Always", "ClusterFirst")
    assert not spec.keys() & {"tolerations", "priority", "enableServiceLinks", "serviceAccountName"}


async def test_unchanged_workload_keeps_its_version(world: World) -> None:
    for kind in KINDS:
        made = await world.create(f"{APPS}/{kind}", a_workload())

        again = await world.request("PUT", f"{APPS}/{kind}/a", made.json)

        assert (kind, again.version) == (kind, made.version)


async def test_unset_times_of_a_deployment_condition_are_null(world: World) -> None:
    await world.create(f"{APPS}/deployments", a_workload())

    status = {"conditions": [{"type": "Available", "status": "True"}]}
    written = await world.merge(f"{APPS}/deployments/a/status", {"status": status})

    shown = written.json["status"]["conditions"][0]
    assert (shown["lastUpdateTime"], shown["lastTransitionTime"]) == (None, None)
