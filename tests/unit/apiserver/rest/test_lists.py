"""Lists: pages at a fixed version while others write, versions old and new, forms."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import virtual_time
from tests.unit.apiserver.world import CONFIG_MAPS, PODS, World, a_config_map, a_pod, a_world


async def test_pages_show_one_version_while_others_write(world: World) -> None:
    for name in "abcde":
        await world.create(CONFIG_MAPS, a_config_map(name))
    first = await world.get(f"{CONFIG_MAPS}?limit=2")
    await world.create(CONFIG_MAPS, a_config_map("bb"))
    await world.delete(f"{CONFIG_MAPS}/d")
    await world.merge(f"{CONFIG_MAPS}/c", {"data": {"key": "changed"}})

    pages = [first]
    while token := pages[-1].json["metadata"].get("continue"):
        pages.append(await world.get(f"{CONFIG_MAPS}?limit=2&continue={token}"))

    assert [page.names for page in pages] == [["a", "b"], ["c", "d"], ["e"]]
    assert len({page.version for page in pages}) == 1
    assert pages[1].json["items"][0]["data"] == {"key": "value"}
    remaining = [page.json["metadata"].get("remainingItemCount") for page in pages]
    assert remaining == [3, 1, None]


@given(
    st.lists(st.tuples(st.sampled_from(["put", "drop"]), st.sampled_from("abcdefgh")), max_size=15),
    st.integers(1, 4),
    st.data(),
)
def test_pages_together_are_the_list_at_their_version(
    writes: list[tuple[str, str]], limit: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(writes)))

    async def scenario() -> None:
        async with a_world() as world:
            for write in writes[:cut]:
                await apply(world, write)
            whole = await world.get(CONFIG_MAPS)
            later = list(writes[cut:])
            names: list[str] = []
            token: str | None = ""
            while token is not None:
                query = f"?limit={limit}&continue={token}" if token else f"?limit={limit}"
                page = await world.get(f"{CONFIG_MAPS}{query}")
                names += page.names
                token = page.json["metadata"].get("continue")
                if later:
                    await apply(world, later.pop())

            assert names == whole.names

    virtual_time.run(scenario())


async def apply(world: World, write: tuple[str, str]) -> None:
    verb, name = write
    if verb == "put":
        await world.request("POST", CONFIG_MAPS, a_config_map(name))
    else:
        await world.delete(f"{CONFIG_MAPS}/{name}")


async def test_expired_continue_token_comes_with_a_new_one(world: World) -> None:
    for name in "abc":
        await world.create(CONFIG_MAPS, a_config_map(name))
    token = (await world.get(f"{CONFIG_MAPS}?limit=1")).json["metadata"]["continue"]
    await world.create(CONFIG_MAPS, a_config_map("bb"))
    world.store.compact()

    expired = await world.get(f"{CONFIG_MAPS}?limit=1&continue={token}")
    again = expired.json["metadata"]["continue"]
    rest = await world.get(f"{CONFIG_MAPS}?continue={again}")

    assert (expired.code, expired.json["reason"]) == (410, "Expired")
    assert rest.names == ["b", "bb", "c"]


async def test_list_at_an_exact_version(world: World) -> None:
    then = (await world.create(CONFIG_MAPS, a_config_map("a"))).version
    await world.create(CONFIG_MAPS, a_config_map("b"))

    exact = await world.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
    at_least = await world.get(f"{CONFIG_MAPS}?resourceVersion={then}")
    world.store.compact()
    gone = await world.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")

    assert (exact.names, exact.version) == (["a"], then)
    assert at_least.names == ["a", "b"]
    assert (gone.code, gone.json["reason"]) == (410, "Expired")


async def test_a_version_of_the_future_is_not_waited_for(world: World) -> None:
    refused = await world.get(f"{CONFIG_MAPS}?resourceVersion=999999")

    assert (refused.code, refused.json["reason"]) == (504, "Timeout")
    assert refused.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert refused.header("retry-after") == ["1"]


async def test_a_list_across_namespaces_is_ordered(world: World) -> None:
    await world.create("/api/v1/namespaces", {"metadata": {"name": "s"}})
    await world.create(CONFIG_MAPS, a_config_map("a"))
    await world.create(CONFIG_MAPS.replace("/t/", "/s/"), a_config_map("z"))

    first = await world.get("/api/v1/configmaps?limit=1")
    token = first.json["metadata"]["continue"]
    second = await world.get(f"/api/v1/configmaps?limit=1&continue={token}")

    assert (first.names, second.names) == (["z"], ["a"])


async def test_fields_select_pods_by_node(world: World) -> None:
    await world.create(PODS, a_pod("here", nodeName="n1"))
    await world.create(PODS, a_pod("there", nodeName="n2"))

    found = await world.get(f"{PODS}?fieldSelector=spec.nodeName=n1,status.phase!=Failed")

    assert found.names == ["here"]


@pytest.mark.parametrize(
    ("accept", "code", "kind"),
    [
        ("application/json", 200, "ConfigMapList"),
        ("", 200, "ConfigMapList"),
        ("*/*", 200, "ConfigMapList"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200, "Table"),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", 200, "ConfigMapList"),
        ("application/vnd.kubernetes.protobuf,application/json", 200, "ConfigMapList"),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            200,
            "PartialObjectMetadataList",
        ),
        ("application/json;as=Table;v=v2;g=meta.k8s.io", 406, "Status"),
        ("application/vnd.kubernetes.protobuf", 406, "Status"),
        ("text/html", 406, "Status"),
    ],
)
async def test_first_supported_media_type_is_sent(
    world: World, accept: str, code: int, kind: str
) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))

    reply = await world.request("GET", CONFIG_MAPS, accept=accept)

    assert (reply.code, reply.json["kind"]) == (code, kind)


async def test_only_the_metadata_is_sent_when_requested(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

    shown: dict[str, Any] = (await world.request("GET", f"{CONFIG_MAPS}/a", accept=accept)).json

    assert shown.keys() == {"kind", "apiVersion", "metadata"}


async def test_a_continue_token_of_a_future_version_is_expired(world: World) -> None:
    token_content = b'{"v":"meta.k8s.io/v1","rv":99999999,"start":"a"}'
    token = base64.urlsafe_b64encode(token_content).decode().rstrip("=")

    assert (await world.get(f"{CONFIG_MAPS}?continue={token}")).code == 410


async def test_overlong_version_is_invalid(world: World) -> None:
    endless = "9" * 5000

    listed = await world.get(f"{CONFIG_MAPS}?resourceVersion={endless}")
    read = await world.get(f"{CONFIG_MAPS}/x?resourceVersion={endless}")

    assert listed.code == 400
    # As for every version of one object that is no number.
    assert "invalid syntax" in read.message
