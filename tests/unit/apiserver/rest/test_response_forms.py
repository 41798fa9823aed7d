"""The forms in which objects are shown, and the documents about them, through the whole server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bramley.apiserver.tables import columns
from tests.unit.apiserver.world import (
    CONFIG_MAPS,
    CRDS,
    PODS,
    WIDGETS,
    Reply,
    World,
    a_config_map,
    a_pod,
    a_widget,
    a_world,
    widget_crd,
)

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def shown(world: World, path: str, **options: Any) -> Reply:
    return await world.request("GET", path, accept=TABLE, **options)


def cells(reply: Reply) -> list[list[Any]]:
    return [row["cells"] for row in reply.json["rows"]]


def headings(reply: Reply) -> list[str]:
    return [each["name"] for each in reply.json["columnDefinitions"]]


async def test_ages_follow_the_servers_clock(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))

    await asyncio.sleep(150)

    assert cells(await shown(world, f"{CONFIG_MAPS}/a")) == [["a", 1, "2m30s"]]


async def test_a_row_includes_the_metadata_by_default(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))

    plain = (await shown(world, CONFIG_MAPS)).json["rows"][0]["object"]
    whole = (await shown(world, f"{CONFIG_MAPS}?includeObject=Object")).json["rows"][0]
    none = (await shown(world, f"{CONFIG_MAPS}?includeObject=None")).json["rows"][0]

    assert (plain["kind"], "data" in plain) == ("PartialObjectMetadata", False)
    assert (whole["object"]["kind"], whole["object"]["data"]) == ("ConfigMap", {"key": "value"})
    assert none["object"] is None


async def test_a_watch_names_its_columns_in_its_first_table_only(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))

    async with world.watching(f"{CONFIG_MAPS}?watch=1", accept=TABLE) as watcher:
        await world.create(CONFIG_MAPS, a_config_map("b"))
        await world.delete(f"{CONFIG_MAPS}/a")

    tables = [event["object"] for event in watcher.events]
    assert [each["kind"] for each in tables] == ["Table"] * 3
    assert [bool(each["columnDefinitions"]) for each in tables] == [True, False, False]
    assert [each["rows"][0]["cells"][0] for each in tables] == ["a", "b", "a"]


async def test_bookmarks_are_tables_and_keep_their_annotation() -> None:
    query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&includeObject=None"
    query += "&resourceVersionMatch=NotOlderThan"
    async with a_world() as world:
        async with world.watching(f"{PODS}?{query}", accept=TABLE) as watcher:
            await world.create(CONFIG_MAPS, a_config_map("a"))

        table = watcher.events[0]["object"]
        mark = table["rows"][0]["object"]["metadata"]["annotations"]
        assert (watcher.events[0]["type"], table["kind"]) == ("BOOKMARK", "Table")
        assert mark == {"k8s.io/initial-events-end": "true"}


async def test_a_write_responds_in_the_requested_form(world: World) -> None:
    made = await world.request("POST", CONFIG_MAPS, a_config_map("a"), accept=TABLE)
    partial = await world.request("POST", CONFIG_MAPS, a_config_map("b"), accept=METADATA)
    gone = await world.request("DELETE", f"{CONFIG_MAPS}/a", accept=TABLE)

    assert (made.code, cells(made)) == (201, [["a", 1, "0s"]])
    assert (partial.code, partial.json["kind"]) == (201, "PartialObjectMetadata")
    assert (gone.code, gone.json["kind"]) == (200, "Status")


async def test_unsupported_media_type_is_refused_before_the_write(world: World) -> None:
    refused = await world.request("POST", CONFIG_MAPS, a_config_map("a"), accept="text/html")

    assert refused.code == 406
    assert (await world.get(f"{CONFIG_MAPS}/a")).code == 404


async def test_invalid_include_object_is_refused_before_the_write(world: World) -> None:
    place = f"{CONFIG_MAPS}?includeObject=Some"
    refused = await world.request("POST", place, a_config_map("a"), accept=TABLE)

    assert refused.code == 400
    assert (await world.get(f"{CONFIG_MAPS}/a")).code == 404


async def test_new_columns_of_a_definition_are_shown_at_once(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, a_widget("a", color="red"))
    before = await shown(world, WIDGETS)
    crd = (await world.get(f"{CRDS}/widgets.example.com")).json
    column = {"name": "Color", "type": "string", "jsonPath": ".spec.color"}
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = [column]

    await world.request("PUT", f"{CRDS}/widgets.example.com", crd)

    after = await shown(world, WIDGETS)
    assert (headings(before), headings(after)) == (["Name", "Age"], ["Name", "Color"])
    assert cells(after) == [["a", "red"]]


async def test_scale_has_its_own_table(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, a_widget("a", replicas=2))

    reply = await shown(world, f"{WIDGETS}/a/scale")

    assert headings(reply) == ["Name", "Desired", "Available", "Age"]
    assert cells(reply) == [["a", 2, 0, "0s"]]


async def test_page_of_a_table_has_a_continue_token(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.create(CONFIG_MAPS, a_config_map(name))

    first = (await shown(world, f"{CONFIG_MAPS}?limit=2")).json["metadata"]
    rest = await shown(world, f"{CONFIG_MAPS}?limit=2&continue={first['continue']}")

    assert first["remainingItemCount"] == 1
    assert [row[0] for row in cells(rest)] == ["c"]


async def test_row_of_an_ended_pod_has_a_condition(world: World) -> None:
    await world.create(PODS, a_pod("a"))
    await world.merge(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})

    row = (await shown(world, f"{PODS}/a")).json["rows"][0]

    assert row["conditions"][0]["reason"] == "Succeeded"


async def test_columns_have_the_priorities_of_the_real_server() -> None:
    found = {each["name"]: each["priority"] for each in columns.definitions("pods") or ()}

    assert (found["Status"], found["Node"]) == (0, 1)


async def test_unchanged_discovery_is_not_modified(world: World) -> None:
    first = await world.request("GET", "/apis", accept=DISCOVERY)
    tag = first.header("etag")[0]
    known = (("if-none-match", tag),)

    second = await world.request("GET", "/apis", accept=DISCOVERY, headers=known)
    await world.create(CRDS, widget_crd())
    third = await world.request("GET", "/apis", accept=DISCOVERY, headers=known)

    assert (first.code, second.code, third.code) == (200, 304, 200)
    # What a 304 says replaces what the client keeps: a type of no content would spoil it.
    assert second.header("content-type") == second.header("content-length") == []
    assert first.header("content-type") == [DISCOVERY]


async def test_discovery_is_aggregated_only_when_that_is_preferred(world: World) -> None:
    first = await world.request("GET", "/apis", accept=f"{DISCOVERY},application/json")
    last = await world.request("GET", "/apis", accept=f"application/json,{DISCOVERY}")
    table = await world.request("GET", "/apis", accept=TABLE)

    assert first.json["kind"] == "APIGroupDiscoveryList"
    assert last.json["kind"] == "APIGroupList"
    assert table.code == 406


async def test_openapi_includes_a_definition_while_it_exists(world: World) -> None:
    before = (await world.get("/openapi/v3")).json["paths"]
    await world.create(CRDS, widget_crd())
    address = (await world.get("/openapi/v3")).json["paths"]["apis/example.com/v1"]
    document = await world.get(address["serverRelativeURL"])
    await world.delete(f"{CRDS}/widgets.example.com")

    assert "apis/example.com/v1" not in before
    spec = document.json["components"]["schemas"]["com.example.v1.Widget"]["properties"]["spec"]
    assert spec["properties"]["replicas"]["default"] == 1
    assert (await world.get(address["serverRelativeURL"])).code == 404


async def test_openapi_url_changes_with_its_definition_only(world: World) -> None:
    await world.create(CRDS, widget_crd())
    old = (await world.get("/openapi/v3")).json["paths"]
    crd = (await world.get(f"{CRDS}/widgets.example.com")).json
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["added"] = {"type": "string"}

    await world.request("PUT", f"{CRDS}/widgets.example.com", crd)

    new = (await world.get("/openapi/v3")).json["paths"]
    assert [path for path in new if new[path] != old[path]] == ["apis/example.com/v1"]
    moved = await world.get(old["apis/example.com/v1"]["serverRelativeURL"])
    address = new["apis/example.com/v1"]["serverRelativeURL"]
    assert (moved.code, moved.header("location")) == (301, [address])


async def test_openapi_document_is_cached_by_etag(world: World) -> None:
    path = "/openapi/v3/apis/coordination.k8s.io/v1"
    first = await world.get(path)
    tag = first.header("etag")[0]

    second = await world.request("GET", path, headers=(("if-none-match", tag),))
    by_hash = await world.get(f"{path}?hash={json.loads(tag)}")

    assert (first.code, second.code, second.body) == (200, 304, b"")
    assert by_hash.header("cache-control") == ["public, immutable"]
    assert first.header("cache-control") == []
