"""Server-side apply through the whole API, and what later writes do to an object's managers."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.apimachinery import metadata
from tests.unit.apiserver.world import (
    CONFIG_MAPS,
    CRDS,
    MERGE,
    WIDGETS,
    Reply,
    World,
    a_config_map,
    widget_crd,
)

Json = dict[str, Any]

APPLY = "application/apply-patch+yaml"
A = f"{CONFIG_MAPS}/a"


def config(**data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


async def apply(world: World, body: Json | bytes, manager: str, query: str = "") -> Reply:
    path = f"{A}?fieldManager={manager}{query}"
    return await world.request("PATCH", path, body, content_type=APPLY)


def owners(reply: Reply) -> list[tuple[str, str, str]]:
    entries = reply.json["metadata"].get("managedFields", [])
    return [(each["manager"], each["operation"], each["apiVersion"]) for each in entries]


async def test_apply_creates_a_missing_object(world: World) -> None:
    made = await apply(world, config(k="v"), "me")

    assert made.code == 201
    assert owners(made) == [("me", "Apply", "v1")]
    assert (await world.get(A)).json == made.json


async def test_a_configuration_may_be_yaml(world: World) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"

    made = await apply(world, text, "me")

    assert made.json["data"] == {"k": "v"}


async def test_invalid_yaml_is_refused(world: World) -> None:
    refused = await apply(world, b"[", "me")

    assert refused.code == 400
    assert refused.message.startswith("error decoding YAML: error converting YAML to JSON: ")


async def test_unchanged_apply_keeps_the_version(world: World) -> None:
    first = await apply(world, config(k="v"), "me")
    second = await apply(world, config(k="v"), "me")

    assert (second.code, second.version) == (200, first.version)


async def test_a_conflict_names_the_field_and_its_manager(world: World) -> None:
    await apply(world, config(k="v"), "one")

    refused = await apply(world, config(k="w"), "two")

    assert refused.code == 409
    text = 'Apply failed with 1 conflict: conflict with "one": .data.k'
    assert refused.message == text
    assert refused.causes == [(".data.k", "FieldManagerConflict")]
    assert (await world.get(A)).json["data"] == {"k": "v"}


async def test_force_takes_ownership_of_the_field(world: World) -> None:
    await apply(world, config(k="v"), "one")

    forced = await apply(world, config(k="w"), "two", "&force=true")

    assert forced.json["data"] == {"k": "w"}
    assert owners(forced) == [("two", "Apply", "v1")]


async def test_fields_no_longer_applied_are_removed_unless_another_manager_owns_them(
    world: World,
) -> None:
    await apply(world, config(k="v", mine="x"), "one")
    await apply(world, config(k="v"), "two")

    left = await apply(world, config(), "one")

    assert left.json["data"] == {"k": "v"}


async def test_objects_never_applied_have_no_managed_fields(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))
    changed = await world.merge(f"{A}?fieldManager=editor", {"data": {"k": "v"}})

    assert "managedFields" not in changed.json["metadata"]


async def test_first_apply_conflicts_with_before_first_apply(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))

    refused = await apply(world, config(key="other"), "me")
    shared = await apply(world, config(key="value"), "me")

    assert 'conflict with "before-first-apply" using v1: .data.key' in refused.message
    assert owners(shared) == [("me", "Apply", "v1"), ("before-first-apply", "Update", "v1")]


async def test_later_update_takes_ownership_and_conflicts_with_the_next_apply(world: World) -> None:
    await apply(world, config(k="v"), "me")

    changed = await world.merge(f"{A}?fieldManager=editor", {"data": {"k": "w"}})
    refused = await apply(world, config(k="v"), "me")

    assert owners(changed) == [("editor", "Update", "v1")]
    assert 'conflict with "editor" using v1: .data.k' in refused.message


async def test_update_keeps_the_managed_fields(world: World) -> None:
    await apply(world, config(k="v"), "me")

    replaced = await world.request("PUT", A, config(k="v"))

    assert owners(replaced) == [("me", "Apply", "v1")]


async def test_managed_fields_can_be_reset(world: World) -> None:
    await apply(world, config(k="v"), "me")

    reset = await world.merge(A, {"metadata": {"managedFields": [{}]}})

    assert "managedFields" not in reset.json["metadata"]


async def test_apply_requires_a_field_manager(world: World) -> None:
    refused = await world.request("PATCH", A, config(), content_type=APPLY)

    assert refused.code == 422
    assert refused.causes == [("fieldManager", "FieldValueRequired")]


async def test_a_dry_run_applies_nothing(world: World) -> None:
    tried = await apply(world, config(k="v"), "me", "&dryRun=All")

    assert (tried.code, tried.json["data"]) == (201, {"k": "v"})
    assert (await world.get(A)).code == 404


async def test_lists_of_custom_kinds_are_owned_as_their_schema_says(world: World) -> None:
    definition = widget_crd()
    version = definition["spec"]["versions"][0]
    tags = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["tags"]
    tags["x-kubernetes-list-type"] = "set"
    await world.create(CRDS, definition)
    for manager, tag in (("one", "a"), ("two", "b")):
        body = {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": "w"},
            "spec": {"color": "red", "tags": [tag]},
        }
        path = f"{WIDGETS}/w?fieldManager={manager}"
        reply = await world.request("PATCH", path, body, content_type=APPLY)

    assert reply.json["spec"]["tags"] == ["a", "b"]


async def test_status_is_applied_separately(world: World) -> None:
    await world.create(CRDS, widget_crd())
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    path = f"{WIDGETS}/w"
    whole = {**body, "spec": {"color": "red"}}
    await world.request("PATCH", f"{path}?fieldManager=one", whole, content_type=APPLY)

    reported = {**body, "status": {"note": "x"}}
    query = "?fieldManager=two"
    reply = await world.request("PATCH", f"{path}/status{query}", reported, content_type=APPLY)

    entry = reply.json["metadata"]["managedFields"][-1]
    assert (entry["manager"], entry["subresource"]) == ("two", "status")
    assert entry["fieldsV1"] == {"f:status": {"f:note": {}}}
    assert reply.json["spec"]["color"] == "red"


async def test_kubectl_can_migrate_from_client_side_apply(world: World) -> None:
    before = a_config_map("a")
    name = "kubectl.kubernetes.io/last-applied-configuration"
    text = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"key":"value"}}'
    before["metadata"]["annotations"] = {name: text}
    await world.create(CONFIG_MAPS, before)

    applied = await apply(world, config(key="new"), "kubectl")

    assert applied.json["data"] == {"key": "new"}
    assert '"key":"new"' in applied.json["metadata"]["annotations"][name]


async def test_a_repeated_field_in_a_strict_patch_is_refused(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))

    text = b'{"data":{"k":"x","k":"y"}}'
    path = f"{A}?fieldValidation=Strict"
    refused = await world.request("PATCH", path, text, content_type=MERGE)

    assert refused.code == 422
    assert 'duplicate field "data.k"' in refused.message


def test_managed_fields_are_taken_from_the_stored_object() -> None:
    managed = [{"manager": "me"}]
    old = {"name": "a", "uid": "u", "managedFields": managed}

    kept = metadata.with_immutable_fields({"name": "a", "managedFields": [{"manager": "you"}]}, old)

    assert kept["managedFields"] == managed
    assert "managedFields" not in metadata.with_immutable_fields(old, {"name": "a", "uid": "u"})
