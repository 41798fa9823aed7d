"""Creating, replacing and patching: versions, generations, what is carried over and what is kept apart."""

from __future__ import annotations

import asyncio

import msgspec

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.store.records import Draft, Key, Record
from tests.unit.apiserver.world import (
    CONFIG_MAPS,
    CRDS,
    JSON_PATCH,
    MERGE,
    PODS,
    WIDGETS,
    World,
    a_config_map,
    a_pod,
    a_widget,
    a_world,
    widget_crd,
)


async def test_versions_increase_with_every_change(world: World) -> None:
    first = await world.create(CONFIG_MAPS, a_config_map("a"))
    second = await world.create(CONFIG_MAPS, a_config_map("b"))
    changed = await world.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})

    assert int(first.version) < int(second.version) < int(changed.version)


async def test_unchanged_update_keeps_the_version(world: World) -> None:
    created = await world.create(CONFIG_MAPS, a_config_map("a"))
    before = world.store.revision

    same = await world.merge(f"{CONFIG_MAPS}/a", {"data": {"key": "value"}})

    assert (same.code, same.version) == (200, created.version)
    assert world.store.revision == before


async def test_true_and_one_are_different_values(world: World) -> None:
    crd = widget_crd()
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-preserve-unknown-fields"] = True
    await world.create(CRDS, crd)
    created = await world.create(WIDGETS, a_widget("w", flag=1))

    changed = await world.merge(f"{WIDGETS}/w", {"spec": {"flag": True}})

    assert changed.json["spec"]["flag"] is True
    assert changed.version != created.version


async def test_concurrent_patches_of_one_object_all_succeed(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            patch = {"data": {f"key-{number}": "x"}}
            group.create_task(world.merge(f"{CONFIG_MAPS}/a", patch))

    found = (await world.get(f"{CONFIG_MAPS}/a")).json["data"]
    assert len(found) == 21


async def test_only_one_of_two_updates_of_a_version_succeeds(world: World) -> None:
    created = await world.create(CONFIG_MAPS, a_config_map("a"))
    bodies = [{**created.json, "data": {"who": who}} for who in ("me", "you")]

    replies = [await world.request("PUT", f"{CONFIG_MAPS}/a", body) for body in bodies]

    assert [reply.code for reply in replies] == [200, 409]
    assert (await world.get(f"{CONFIG_MAPS}/a")).json["data"] == {"who": "me"}


async def test_generated_name_collision_is_retried() -> None:
    async with a_world(Settings(generate_name_tries=3)) as world:
        names = {
            (await world.create(CONFIG_MAPS, {"metadata": {"generateName": "x-"}})).name
            for _ in range(30)
        }

        assert len(names) == 30


async def test_without_a_free_name_the_response_has_retry_after() -> None:
    async with a_world(Settings(generate_name_tries=1)) as world:
        world.app.api._server.rng.choices = lambda *_args, **_more: list("bbbbb")  # type: ignore[method-assign]
        await world.create(CONFIG_MAPS, {"metadata": {"generateName": "x-"}})

        refused = await world.request("POST", CONFIG_MAPS, {"metadata": {"generateName": "x-"}})

        assert (refused.code, refused.json["reason"]) == (409, "AlreadyExists")
        assert refused.header("retry-after") == ["1"]


async def test_the_generation_counts_changes_of_the_spec_only(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, a_widget("w"))

    generations = [
        (await world.merge(f"{WIDGETS}/w{path}", patch)).json["metadata"]["generation"]
        for path, patch in (
            ("", {"spec": {"color": "blue"}}),
            ("", {"metadata": {"labels": {"x": "y"}}}),
            ("/status", {"status": {"note": "x"}}),
            ("", {"spec": {"replicas": 5}}),
        )
    ]

    assert generations == [2, 2, 2, 3]


async def test_status_and_spec_do_not_touch_each_other(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, {**a_widget("w"), "status": {"note": "ignored"}})

    await world.merge(f"{WIDGETS}/w", {"status": {"note": "ignored"}})
    patched = await world.merge(
        f"{WIDGETS}/w/status", {"status": {"note": "reported"}, "spec": {"color": "blue"}}
    )
    kept = await world.merge(f"{WIDGETS}/w", {"spec": {"replicas": 2}, "status": None})

    assert patched.json["spec"]["color"] == "red"
    assert kept.json["status"] == {"note": "reported"}


async def test_a_failed_json_patch_leaves_the_object_alone(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))
    operations = [
        {"op": "replace", "path": "/data/key", "value": "changed"},
        {"op": "test", "path": "/data/key", "value": "value"},
    ]

    refused = await world.request("PATCH", f"{CONFIG_MAPS}/a", operations, content_type=JSON_PATCH)

    assert (refused.code, refused.json["reason"]) == (422, "Invalid")
    assert (await world.get(f"{CONFIG_MAPS}/a")).json["data"] == {"key": "value"}


async def test_dry_run_returns_the_result_and_stores_nothing(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))
    before = world.store.revision

    created = await world.request("POST", f"{CONFIG_MAPS}?dryRun=All", a_config_map("b"))
    patched = await world.request(
        "PATCH", f"{CONFIG_MAPS}/a?dryRun=All", {"data": {"k": "v"}}, content_type=MERGE
    )
    deleted = await world.delete(f"{CONFIG_MAPS}/a?dryRun=All")
    many = await world.delete(f"{CONFIG_MAPS}?dryRun=All")
    ended = await world.delete("/api/v1/namespaces/t?dryRun=All")

    assert (created.code, patched.json["data"]["k"]) == (201, "v")
    assert [deleted.code, many.code, ended.code] == [200, 200, 200]
    assert world.store.revision == before
    assert (await world.request("POST", CONFIG_MAPS, a_config_map("b"))).code == 201


async def test_every_version_of_a_kind_shows_the_same_object(world: World) -> None:
    crd = widget_crd()
    older = {**crd["spec"]["versions"][0], "name": "v1beta1", "storage": False}
    crd["spec"]["versions"].append(older)
    await world.create(CRDS, crd)
    await world.create(WIDGETS, a_widget("w"))

    other = WIDGETS.replace("/v1/", "/v1beta1/")
    shown = await world.get(f"{other}/w")
    changed = await world.merge(f"{other}/w", {"spec": {"color": "blue"}})
    listed = await world.get(other)

    assert shown.json["apiVersion"] == changed.json["apiVersion"] == "example.com/v1beta1"
    assert listed.json["items"][0]["apiVersion"] == "example.com/v1beta1"
    stored = (await world.get(f"{WIDGETS}/w")).json
    assert (stored["apiVersion"], stored["spec"]["color"]) == ("example.com/v1", "blue")


async def test_node_name_of_a_pod_is_immutable(world: World) -> None:
    await world.create(PODS, a_pod("p"))

    moved = await world.merge(f"{PODS}/p", {"spec": {"nodeName": "n"}})
    renewed = await world.merge(
        f"{PODS}/p", {"spec": {"containers": [{"name": "vm", "image": "newer"}]}}
    )

    assert (moved.code, moved.causes) == (422, [("spec", "FieldValueForbidden")])
    assert renewed.json["metadata"]["generation"] == 2


async def test_both_groups_of_events_show_one_store(world: World) -> None:
    events = "/api/v1/namespaces/t/events"
    about = {"kind": "Pod", "name": "p", "namespace": "t"}
    await world.create(
        events, {"metadata": {"name": "e"}, "involvedObject": about, "message": "hi"}
    )

    shown = await world.get("/apis/events.k8s.io/v1/namespaces/t/events/e")

    assert shown.json["apiVersion"] == "events.k8s.io/v1"
    assert (shown.json["note"], shown.json["regarding"]) == ("hi", about)


async def test_object_valid_only_under_older_rules_can_lose_its_finalizers(world: World) -> None:
    pod = a_pod("old", activeDeadlineSeconds=60)
    pod["metadata"]["finalizers"] = ["example.com/held"]
    await world.create(PODS, pod)

    def under_older_rules(current: Record | None, rv: int) -> Draft:
        assert current is not None
        body = msgspec.json.decode(current.body)
        body["metadata"]["resourceVersion"] = str(rv)
        body["spec"]["hostname"] = "No_Name"
        return Draft(msgspec.json.encode(body), fields=current.fields)

    await world.store.write(Key("pods", "t", "old"), under_older_rules)
    changed = await world.merge(f"{PODS}/old", {"spec": {"activeDeadlineSeconds": 30}})
    await world.delete(f"{PODS}/old")
    released = await world.merge(f"{PODS}/old", {"metadata": {"finalizers": None}})

    assert (changed.code, released.code) == (422, 200)
    assert "spec.hostname" in changed.json["message"]
    assert (await world.get(f"{PODS}/old")).code == 404
