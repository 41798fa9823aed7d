"""Lists: pages, selectors and the version from which a watch continues."""

from __future__ import annotations

import pytest

from bramley.api.coordination import Lease
from bramley.api.core import ConfigMap
from bramley.api.meta import ObjectMeta
from bramley.api.pod import Pod
from bramley.base import errors
from bramley.kube.transport import Request
from tests.contract.kube_client.kinds import Widget
from tests.contract.kube_client.targets import World
from tests.contract.kube_client.watch_history import expire_lease_history


async def test_empty_list_has_a_version(world: World) -> None:
    found = await world.kube.list(Widget, namespace=world.namespace)

    assert found.items == []
    assert int(found.resource_version) > 0


async def test_pages_add_up_to_the_whole_list(world: World) -> None:
    names = [f"w-{number}" for number in range(7)]
    for name in names:
        await world.widget(name)

    found = await world.kube.list(Widget, namespace=world.namespace, page_size=3)
    pages = [
        [item.name for item in page.items]
        async for page in world.kube.pages(Widget, namespace=world.namespace, page_size=3)
    ]

    assert [item.name for item in found.items] == names
    assert pages == [names[:3], names[3:6], names[6:]]


async def test_all_pages_have_the_version_of_the_first(world: World) -> None:
    for name in ("a", "b", "c", "d"):
        await world.widget(name)

    seen: list[str] = []
    versions: set[str] = set()
    async for page in world.kube.pages(Widget, namespace=world.namespace, page_size=2):
        seen.extend(item.name for item in page.items)
        versions.add(page.resource_version)
        if len(seen) == 2:
            await world.kube.delete(Widget, "c", namespace=world.namespace)
            await world.widget("e")

    assert seen == ["a", "b", "c", "d"]
    assert len(versions) == 1


async def test_a_list_of_all_namespaces(world: World) -> None:
    await world.widget("mine")

    everywhere = await world.kube.list(Widget)
    nowhere = await world.kube.list(Widget, namespace="default")

    places = {(item.namespace, item.name) for item in everywhere.items}
    assert (world.namespace, "mine") in places
    assert "mine" not in {item.name for item in nowhere.items}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"colour": "red"}, ["a", "b"]),
        ({"colour": "red", "size": "big"}, ["b"]),
        ("colour!=red", ["c", "d"]),
        ("colour in (red, blue)", ["a", "b", "c"]),
        ("colour notin (red)", ["c", "d"]),
        ("colour", ["a", "b", "c"]),
        ("!colour", ["d"]),
        ("colour=red,size!=big", ["a"]),
    ],
)
async def test_label_selector_filters_a_list(
    world: World, selector: dict[str, str] | str, expected: list[str]
) -> None:
    own = {"suite": "contract"}
    await world.config("a", **own, colour="red")
    await world.config("b", **own, colour="red", size="big")
    await world.config("c", **own, colour="blue")
    await world.config("d", **own)

    text = (
        selector
        if isinstance(selector, str)
        else ",".join(f"{key}={value}" for key, value in selector.items())
    )
    found = await world.kube.list(
        ConfigMap, namespace=world.namespace, labels=f"{text},suite=contract"
    )

    assert [item.name for item in found.items] == expected


async def test_field_selector_filters_a_list(world: World) -> None:
    await world.pod("a", node=world.mac)
    await world.pod("b", node=f"{world.mac}-2")
    await world.widget("slow")
    await world.widget("fast", mode="fast")

    by_node = await world.kube.list(
        Pod, namespace=world.namespace, fields={"spec.nodeName": f"{world.mac}-2"}
    )
    by_phase = await world.kube.list(Pod, namespace=world.namespace, fields="status.phase!=Pending")
    by_name = await world.kube.list(
        Widget, namespace=world.namespace, fields={"metadata.name": "slow"}
    )
    by_own_field = await world.kube.list(
        Widget, namespace=world.namespace, fields={"spec.mode": "fast"}
    )

    assert [pod.name for pod in by_node.items] == ["b"]
    assert by_phase.items == []
    assert [item.name for item in by_name.items] == ["slow"]
    assert [item.name for item in by_own_field.items] == ["fast"]


async def test_invalid_selectors_are_bad_requests(world: World) -> None:
    with pytest.raises(errors.BadRequest):
        await world.kube.list(ConfigMap, namespace=world.namespace, labels="a=b=c,,(")
    with pytest.raises(errors.BadRequest):
        await world.kube.list(ConfigMap, namespace=world.namespace, fields="data.x=1")


async def test_an_invalid_version_is_a_bad_request(world: World) -> None:
    with pytest.raises(errors.BadRequest):
        await world.kube.list(Widget, namespace=world.namespace, resource_version="yesterday")


async def test_an_invalid_page_token_is_a_bad_request(world: World) -> None:
    path = ConfigMap.resource.path(world.namespace)

    answer = await world.kube._transport.send(Request("GET", path, {"continue": "nonsense"}))

    assert answer.status == 400


@pytest.mark.parametrize("target", ["in-process", "over-http"], indirect=True)
async def test_a_list_whose_version_expired_starts_over(world: World) -> None:
    """The real server expires versions only after five minutes, so only our server is tested."""
    for name in ("a", "b", "c"):
        await world.kube.create(Lease(metadata=ObjectMeta(name=name)), namespace=world.namespace)
    pages = world.kube.pages(Lease, namespace=world.namespace, page_size=2)
    await anext(pages)

    await expire_lease_history(world)

    with pytest.raises(errors.Gone):
        await anext(pages)
    found = await world.kube.list(Lease, namespace=world.namespace, page_size=2)
    assert [item.name for item in found.items] == ["a", "b", "c"]
