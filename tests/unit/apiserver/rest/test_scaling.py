"""The scale subresource: replicas read and written through another kind's face."""

from __future__ import annotations

from tests.unit.apiserver.world import CRDS, MERGE, WIDGETS, World, a_widget, widget_crd

SCALE = f"{WIDGETS}/w/scale"


async def test_scaling_changes_the_object_and_its_generation(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, a_widget("w"))
    await world.merge(f"{WIDGETS}/w/status", {"status": {"replicas": 2, "selector": "a=b"}})

    scaled = await world.merge(SCALE, {"spec": {"replicas": 4}})

    assert scaled.json["spec"] == {"replicas": 4}
    assert scaled.json["status"] == {"replicas": 2, "selector": "a=b"}
    found = (await world.get(f"{WIDGETS}/w")).json
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (4, 2)


async def test_a_scale_of_an_old_version_is_refused(world: World) -> None:
    await world.create(CRDS, widget_crd())
    old = await world.create(WIDGETS, a_widget("w"))
    await world.merge(SCALE, {"spec": {"replicas": 4}})

    patch = {"metadata": {"resourceVersion": old.version}, "spec": {"replicas": 5}}
    refused = await world.merge(SCALE, patch)

    assert (refused.code, refused.json["reason"]) == (409, "Conflict")


async def test_invalid_replicas_are_refused(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, a_widget("w"))

    negative = await world.merge(SCALE, {"spec": {"replicas": -1}})
    text = await world.merge(SCALE, {"spec": {"replicas": "many"}})

    assert (negative.code, text.code) == (422, 400)
    assert (await world.get(SCALE)).json["spec"] == {"replicas": 1}


async def test_a_dry_run_scales_nothing(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, a_widget("w"))

    tried = await world.request(
        "PATCH", f"{SCALE}?dryRun=All", {"spec": {"replicas": 9}}, content_type=MERGE
    )

    assert tried.json["spec"] == {"replicas": 9}
    assert (await world.get(SCALE)).json["spec"] == {"replicas": 1}


async def test_scale_of_other_kinds_is_not_found(world: World) -> None:
    assert (await world.get("/api/v1/namespaces/t/configmaps/a/scale")).code == 404
