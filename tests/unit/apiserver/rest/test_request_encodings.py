"""What clients write: protobuf bodies and strategic patches, through the whole API."""

from __future__ import annotations

from typing import Any

from tests.unit.apiserver.protobuf import encoding
from tests.unit.apiserver.world import (
    CONFIG_MAPS,
    CRDS,
    PODS,
    WIDGETS,
    World,
    a_config_map,
    a_pod,
    a_widget,
    widget_crd,
)

PROTOBUF = "application/vnd.kubernetes.protobuf"
STRATEGIC = "application/strategic-merge-patch+json"


def protobuf(kind: str, body: dict[str, Any]) -> bytes:
    return encoding.whole({"apiVersion": "v1", "kind": kind, **body})


async def test_an_object_in_protobuf_is_stored_as_json(world: World) -> None:
    sent = protobuf("ConfigMap", a_config_map("a", x="y"))
    made = await world.request("POST", CONFIG_MAPS, sent, content_type=PROTOBUF)

    assert made.code == 201
    stored = (await world.get(f"{CONFIG_MAPS}/a")).json
    assert (stored["kind"], stored["data"]) == ("ConfigMap", {"key": "value"})
    assert stored["metadata"]["labels"] == {"x": "y"}


async def test_protobuf_of_a_custom_kind_is_refused(world: World) -> None:
    await world.create(CRDS, widget_crd())

    refused = await world.request("POST", WIDGETS, b"k8s\0\x12\x00", content_type=PROTOBUF)

    assert refused.code == 415
    assert "application/json, application/yaml" in refused.message


async def test_delete_options_in_protobuf_are_read(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))
    options = encoding.message({"preconditions": {"uid": "other"}}, "meta/v1.DeleteOptions")
    body = encoding.envelope("v1", "DeleteOptions", options)

    refused = await world.request("DELETE", f"{CONFIG_MAPS}/a", body, content_type=PROTOBUF)

    assert refused.code == 409


async def test_a_strategic_patch_changes_one_container_of_two(world: World) -> None:
    pair = [{"name": "vm", "image": "one"}, {"name": "side", "image": "two"}]
    await world.create(PODS, a_pod("a", containers=pair))

    patch = {"spec": {"containers": [{"name": "side", "image": "three"}]}}
    patched = await world.request("PATCH", f"{PODS}/a", patch, content_type=STRATEGIC)

    assert [each["image"] for each in patched.json["spec"]["containers"]] == ["one", "three"]


async def test_a_strategic_patch_of_a_custom_kind_is_refused(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, a_widget("a"))

    refused = await world.request("PATCH", f"{WIDGETS}/a", {}, content_type=STRATEGIC)

    assert refused.code == 415


async def test_a_custom_kind_named_like_a_built_in_one_has_no_merge_keys(world: World) -> None:
    definition = widget_crd()
    definition["metadata"]["name"] = "deployments.apps.example.com"
    definition["spec"]["group"] = "apps.example.com"
    definition["spec"]["names"] = {"plural": "deployments", "kind": "Deployment"}
    await world.create(CRDS, definition)
    path = "/apis/apps.example.com/v1/namespaces/t/deployments"
    body = a_widget("a") | {"apiVersion": "apps.example.com/v1", "kind": "Deployment"}
    await world.create(path, body)

    refused = await world.request("PATCH", f"{path}/a", {}, content_type=STRATEGIC)

    assert refused.code == 415


async def test_mismatched_strategic_patch_is_reported_as_go_prints_it(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))

    patch = {"data": {"k": 5}}
    refused = await world.request("PATCH", f"{CONFIG_MAPS}/a", patch, content_type=STRATEGIC)

    assert refused.code == 422
    assert '"map[data:map[k:5]]": cannot convert int64 to string' in refused.message


async def test_strategic_patch_that_changes_nothing_keeps_the_version(world: World) -> None:
    before = await world.create(CONFIG_MAPS, a_config_map("a"))

    patch = {"data": {"key": "value"}}
    after = await world.request("PATCH", f"{CONFIG_MAPS}/a", patch, content_type=STRATEGIC)

    assert after.version == before.version
