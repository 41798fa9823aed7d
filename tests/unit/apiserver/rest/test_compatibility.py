"""Requests of other releases and clients: another kind's delete options, deprecated versions, old document forms."""

from __future__ import annotations

import copy

import msgspec

from tests.unit.apiserver.world import World, a_config_map, a_widget, a_world, widget_crd

MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OLD_BINARY = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


async def test_a_body_of_another_kind_deletes_nothing(world: World) -> None:
    await world.create(MAPS, a_config_map("a"))

    refused = await world.delete(f"{MAPS}/a", {"kind": "Foo", "apiVersion": "v1"})

    assert (refused.code, refused.message) == (500, 'no kind "Foo" is registered for version "v1"')
    assert (await world.get(f"{MAPS}/a")).code == 200
    deleted = await world.delete(f"{MAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1"})
    assert deleted.code == 200


async def test_requests_for_a_deprecated_version_get_a_warning() -> None:
    crd = widget_crd()
    crd["metadata"]["name"] = "gadgets.example.com"
    crd["spec"]["names"] = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
    kept = crd["spec"]["versions"][0]
    old = copy.deepcopy(kept) | {"name": "v1beta1", "storage": False, "deprecated": True}
    older = copy.deepcopy(old) | {"name": "v1alpha1", "deprecationWarning": "use v1"}
    crd["spec"]["versions"] = [kept, old, older]
    async with a_world() as world:
        await world.create(DEFINITIONS, crd)

        warnings = [
            (await world.get(f"/apis/example.com/{version}/gadgets")).header("warning")
            for version in ("v1", "v1beta1", "v1alpha1")
        ]

        assert warnings == [
            [],
            ['299 - "example.com/v1beta1 Gadget is deprecated"'],
            ['299 - "use v1"'],
        ]


async def test_openapi_v2_is_served_and_empty(world: World) -> None:
    plain = await world.request("GET", "/openapi/v2", accept="application/json")
    binary = await world.request("GET", "/openapi/v2", accept=OLD_BINARY)
    other = await world.request("GET", "/openapi/v2", accept="text/html")

    assert msgspec.json.decode(plain.body)["paths"] == {}
    assert binary.body == b"\n\x032.0\x12\x12\n\nKubernetes\x12\x041.34"
    assert binary.header("content-type") == [OLD_BINARY.replace("@", ".")]
    assert other.code == 406


async def test_an_invalid_count_is_reported_once_for_its_shape_and_once_for_scaling() -> None:
    crd = widget_crd()
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["x-kubernetes-validations"] = [{"rule": "self.color == 'red'"}]
    async with a_world() as world:
        await world.create(DEFINITIONS, crd)

        refused = await world.request(
            "POST", "/apis/example.com/v1/namespaces/default/widgets", a_widget("a", replicas="x")
        )

        assert [field for field, _ in refused.causes] == [
            "spec.replicas",
            ".spec.replicas",
            "<nil>",
        ]
