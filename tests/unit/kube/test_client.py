"""What the client puts on the wire and makes of the answers; `tests/contract/kube_client` asks real servers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bramley.api.core import Namespace, Pod
from bramley.api.meta import ObjectMeta
from bramley.base import errors
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response
from tests import virtual_time
from tests.unit.kube.fake_transport import (
    Answer,
    FakeTransport,
    Widget,
    WidgetSpec,
    answer,
    refusal,
    widget,
)


def client(*answers: Answer) -> tuple[Client, FakeTransport]:
    transport = FakeTransport(*answers)
    return Client(transport, clock=virtual_time.clock()), transport


def body(request: Request) -> Any:
    return msgspec.json.decode(request.body or b"null")


WIDGETS = "/apis/example.dev/v1/namespaces/ns/widgets"


async def test_get_reads_one_path() -> None:
    kube, transport = client(answer(200, widget("a")))

    found = await kube.get(Widget, "a", namespace="ns", resource_version="0")

    [request] = transport.requests
    assert (request.method, request.path) == ("GET", f"{WIDGETS}/a")
    assert request.query == {"resourceVersion": "0"}
    assert found.spec == WidgetSpec(size=1)


async def test_undecodable_object_is_an_invalid_spec() -> None:
    kube, _ = client(answer(200, widget("a", size="large")))

    with pytest.raises(errors.InvalidSpec) as caught:
        await kube.get(Widget, "a", namespace="ns")

    assert [cause.field for cause in caught.value.causes] == ["spec.size"]


async def test_response_that_is_not_json_is_unavailable() -> None:
    kube, _ = client(Response(200, {}, b"<html>"))

    with pytest.raises(errors.ApiUnavailable, match="not a JSON object"):
        await kube.get(Widget, "a", namespace="ns")
    with pytest.raises(errors.ApiUnavailable, match="not a JSON object"):
        await kube.list(Widget)
    with pytest.raises(errors.ApiUnavailable, match="not a JSON object"):
        await kube.create_wire(Widget.resource, {}, namespace="ns")


def page(*names: str, version: int = 5, token: str = "") -> Answer:
    meta = {"resourceVersion": str(version), "continue": token}
    return answer(200, {"metadata": meta, "items": [widget(name) for name in names]})


async def test_list_follows_the_pages_and_keeps_the_first_version() -> None:
    kube, transport = client(page("a", token="t1"), page("b", token="t2"), page("c"))

    found = await kube.list(Widget, labels={"x": "y"}, page_size=1, resource_version="3")

    assert [item.name for item in found.items] == ["a", "b", "c"]
    assert found.resource_version == "5"
    assert [dict(request.query) for request in transport.requests] == [
        {"labelSelector": "x=y", "limit": "1", "resourceVersion": "3"},
        {"labelSelector": "x=y", "limit": "1", "continue": "t1"},
        {"labelSelector": "x=y", "limit": "1", "continue": "t2"},
    ]


async def test_expired_list_is_restarted_once() -> None:
    expired = refusal(410, "Expired")
    kube, transport = client(page("a", token="t"), expired, page("b", version=9))

    found = await kube.list(Widget)

    assert [item.name for item in found.items] == ["b"]
    assert found.resource_version == "9"
    assert "continue" not in transport.requests[-1].query


async def test_a_list_that_expires_twice_is_gone() -> None:
    expired = refusal(410, "Expired")
    kube, transport = client(page("a", token="t"), expired, page("a", token="t"), expired)

    with pytest.raises(errors.Gone):
        await kube.list(Widget)

    assert len(transport.requests) == 4


async def test_expired_page_is_not_restarted() -> None:
    kube, _ = client(page("a", token="t"), refusal(410, "Expired"))
    seen: list[str] = []

    async def read() -> None:
        async for found in kube.pages(Widget):
            seen.extend(item.name for item in found.items)

    with pytest.raises(errors.Gone):
        await read()
    assert seen == ["a"]


async def test_undecodable_object_does_not_hide_the_rest_of_a_list() -> None:
    items = [widget("a"), widget("odd", size="large"), widget("b")]
    kube, _ = client(answer(200, {"metadata": {"resourceVersion": "5"}, "items": items}))

    found = await kube.list(Widget)

    assert [item.name for item in found.items] == ["a", "b"]
    [odd] = found.undecodable
    assert odd.metadata.name == "odd"
    assert "int" in odd.error
    assert "large" not in repr(odd)


async def test_an_empty_list_may_be_null() -> None:
    kube, _ = client(answer(200, {"metadata": {"resourceVersion": "5"}, "items": None}))

    assert (await kube.list(Widget)).items == []


async def test_create_posts_the_whole_object_with_its_kind() -> None:
    kube, transport = client(answer(201, widget("a")))
    obj = Widget(metadata=ObjectMeta(name="a", namespace="ns"), spec=WidgetSpec(size=3))

    made = await kube.create(obj)

    [request] = transport.requests
    assert (request.method, request.path) == ("POST", WIDGETS)
    assert request.content_type == "application/json"
    assert body(request) == {
        "apiVersion": "example.dev/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"size": 3},
    }
    assert made.metadata.resource_version == "1"


async def test_namespace_argument_is_used_for_an_object_without_one() -> None:
    kube, transport = client(answer(201, widget("a")))

    await kube.create(Widget(spec=WidgetSpec(size=3)), namespace="ns")

    assert transport.requests[0].path == WIDGETS


async def test_merge_patch_carries_its_preconditions() -> None:
    kube, transport = client(answer(200, widget("a")))
    patch = {"metadata": {"labels": {"x": None}}, "spec": {"size": 2}}

    await kube.merge_patch(
        Widget, "a", patch, namespace="ns", subresource="status", resource_version="7", uid="u"
    )

    [request] = transport.requests
    assert (request.method, request.path) == ("PATCH", f"{WIDGETS}/a/status")
    assert request.content_type == "application/merge-patch+json"
    assert body(request) == {
        "metadata": {"labels": {"x": None}, "resourceVersion": "7", "uid": "u"},
        "spec": {"size": 2},
    }
    assert patch["metadata"] == {"labels": {"x": None}}


async def test_a_patch_of_another_object_of_the_same_name_is_a_conflict() -> None:
    cause = {"field": "metadata.uid", "reason": "FieldValueInvalid", "message": "immutable"}
    status = {"code": 422, "reason": "Invalid", "details": {"causes": [cause]}}
    kube, _ = client(answer(422, status))

    with pytest.raises(errors.Conflict):
        await kube.merge_patch(Widget, "a", {}, namespace="ns", uid="u")


async def test_json_patch_sends_its_steps() -> None:
    kube, transport = client(answer(200, widget("a")))
    steps = [{"op": "test", "path": "/spec/size", "value": 1}]

    await kube.json_patch(Widget, "a", steps, namespace="ns")

    [request] = transport.requests
    assert request.content_type == "application/json-patch+json"
    assert body(request) == steps


async def test_apply_names_its_object_and_manager() -> None:
    kube, transport = client(answer(200, widget("a")))

    await kube.apply(Widget, "a", {"spec": {"size": 2}}, manager="me", force=True, namespace="ns")

    [request] = transport.requests
    assert request.content_type == "application/apply-patch+yaml"
    assert request.query == {"fieldManager": "me", "force": "true"}
    assert body(request) == {
        "apiVersion": "example.dev/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"size": 2},
    }


async def test_delete_sends_preconditions() -> None:
    kube, transport = client(answer(200, {}))

    await kube.delete(
        Widget,
        "a",
        namespace="ns",
        uid="u",
        resource_version="7",
        grace=timedelta(0),
        propagation="Foreground",
    )

    [request] = transport.requests
    assert (request.method, request.path) == ("DELETE", f"{WIDGETS}/a")
    assert body(request) == {
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
    }


async def test_an_empty_name_never_becomes_a_delete_of_all() -> None:
    kube, transport = client(answer(200, {}))

    with pytest.raises(errors.BadRequest):
        await kube.delete(Widget, "", namespace="ns")
    with pytest.raises(errors.BadRequest):
        await kube.delete_collection(Widget)

    assert transport.requests == []


async def test_delete_collection_sends_its_selectors() -> None:
    kube, transport = client(answer(200, {}))

    await kube.delete_collection(Widget, namespace="ns", labels={"x": "y"}, fields="a!=b")

    [request] = transport.requests
    assert (request.method, request.path) == ("DELETE", WIDGETS)
    assert request.query == {"labelSelector": "x=y", "fieldSelector": "a!=b"}


async def test_scale_reads_and_sets_replicas() -> None:
    kube, transport = client(answer(200, {"spec": {"replicas": 4}, "status": {"replicas": 3}}))

    scaled = await kube.scale(Widget, "a", namespace="ns", replicas=4)
    found = await kube.get_scale(Widget, "a", namespace="ns")

    assert scaled == found
    assert (found.spec.replicas, found.status.replicas) == (4, 3)
    assert [(r.method, r.path) for r in transport.requests] == [
        ("PATCH", f"{WIDGETS}/a/scale"),
        ("GET", f"{WIDGETS}/a/scale"),
    ]
    assert body(transport.requests[0]) == {"spec": {"replicas": 4}}


async def test_evict_posts_an_eviction() -> None:
    kube, transport = client(answer(201, {}))

    await kube.evict("pod", "ns", grace=timedelta(seconds=5), uid="u")

    [request] = transport.requests
    assert request.path == "/api/v1/namespaces/ns/pods/pod/eviction"
    assert body(request) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "pod", "namespace": "ns"},
        "deleteOptions": {"gracePeriodSeconds": 5, "preconditions": {"uid": "u"}},
    }


async def test_a_requested_token_is_bound_and_hidden() -> None:
    status = {"token": "hunter2", "expirationTimestamp": "2026-01-01T01:00:00Z"}
    kube, transport = client(answer(201, {"status": status}))
    pod = Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="u"))

    issued = await kube.request_token(
        "runner", "ns", audiences=["here"], expires=timedelta(hours=1), bound_to=pod
    )

    assert issued.token.reveal() == "hunter2"
    assert issued.expires == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert "hunter2" not in repr(issued)
    [request] = transport.requests
    assert request.path == "/api/v1/namespaces/ns/serviceaccounts/runner/token"
    assert body(request)["spec"] == {
        "audiences": ["here"],
        "expirationSeconds": 3600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
    }


@pytest.mark.parametrize("status", [{}, {"token": "hunter2"}, {"token": ["hunter2"]}])
async def test_error_for_a_missing_token_hides_the_response(status: object) -> None:
    kube, _ = client(answer(201, {"status": status}))

    with pytest.raises(errors.ApiUnavailable) as caught:
        await kube.request_token("a", "ns", audiences=[], expires=timedelta(hours=1))

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_cluster_wide_kinds_need_no_namespace() -> None:
    kube, transport = client(answer(200, {"metadata": {"name": "ns"}}))

    await kube.get(Namespace, "ns")

    assert transport.requests[0].path == "/api/v1/namespaces/ns"
