"""Requests: anonymous access, limits, and that malformed requests never change the store."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.http.exchange import Response, send_response
from bramley.apiserver.kinds import builtin_kinds
from bramley.apiserver.rest import bodies
from bramley.apiserver.rest.routes import SUBRESOURCES
from bramley.apiserver.store.errors import StorageUnavailable
from tests import virtual_time
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


@pytest.mark.parametrize(
    "path", ["/healthz", "/livez", "/readyz", "/version", "/version/", "/readyz/store"]
)
async def test_anonymous_users_may_read_health_and_version(world: World, path: str) -> None:
    assert (await world.request("GET", path, token=None)).code == 200
    assert (await world.request("GET", path, token="wrong")).code == 401


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/api/v1", CONFIG_MAPS, "/metrics", "/openapi/v3", "/"]
)
async def test_anonymous_users_may_read_nothing_else(world: World, path: str) -> None:
    refused = await world.request("GET", path, token=None)
    wrong = await world.request("GET", path, token="wrong")

    assert (refused.code, refused.json["reason"]) == (403, "Forbidden")
    assert 'User "system:anonymous" cannot ' in refused.message
    assert (wrong.code, wrong.json["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize("path", ["/openapi/v4", "/nothing/here", "/apis/none.example.com/v1/x"])
async def test_an_unknown_path_is_a_plain_text_404(world: World, path: str) -> None:
    refused = await world.get(path)

    assert (refused.code, refused.body) == (404, b"404 page not found\n")


async def test_unserved_version_is_a_404_status(world: World) -> None:
    refused = await world.get("/api/v9")

    found = (refused.code, refused.json["kind"], refused.json["reason"])
    assert found == (404, "Status", "NotFound")


async def test_probes_have_a_verbose_form(world: World) -> None:
    plain = await world.get("/readyz")
    found = await world.get("/readyz?verbose&exclude=store&exclude=nothing")

    assert plain.body == b"ok"
    assert found.body.decode().splitlines() == [
        "[+]ping ok",
        "[+]store excluded: ok",
        'warn: some health checks cannot be excluded: no matches for "nothing"',
        "readyz check passed",
    ]


async def test_version_names_the_project(world: World) -> None:
    found = (await world.get("/version")).json

    assert (found["major"], found["minor"]) == ("1", "34")
    assert found["gitVersion"].endswith("+bramley")


async def test_root_lists_every_served_path(world: World) -> None:
    await world.create(CRDS, widget_crd())

    paths = (await world.get("/")).json["paths"]
    answers = [(await world.get(path)).code for path in paths]

    assert paths == sorted(paths)
    assert {"/api/v1", "/apis/apps/v1", "/healthz", "/openapi/v3", "/version"} <= set(paths)
    assert {f"/apis/{WIDGETS.split('/')[2]}", "/apis"} <= set(paths)
    assert set(answers) == {200}


async def test_discovery_shows_every_kind_that_is_served(world: World) -> None:
    await world.create(CRDS, widget_crd())

    groups = (await world.get("/apis")).json["groups"]
    versions = [group["preferredVersion"]["groupVersion"] for group in groups]
    found = set()
    for path in ["/api/v1", *(f"/apis/{version}" for version in versions)]:
        found |= {each["kind"] for each in (await world.get(path)).json["resources"]}

    extra = {each.kind for each in SUBRESOURCES.values()}
    parts = {"Scale", "TokenRequest"}
    assert found == {each.kind for each in builtin_kinds.builtin()} | parts | {"Widget"} | extra


async def test_the_best_version_of_a_group_is_preferred(world: World) -> None:
    crd = widget_crd()
    for name in ("v1alpha1", "v2beta1", "v10", "v2"):
        crd["spec"]["versions"].append(
            {**crd["spec"]["versions"][0], "name": name, "storage": False}
        )
    await world.create(CRDS, crd)

    group = (await world.get("/apis/example.com")).json

    order = [each["version"] for each in group["versions"]]
    assert order == ["v10", "v2", "v1", "v2beta1", "v1alpha1"]


async def test_a_body_over_the_limit_is_not_read_to_its_end() -> None:
    async with a_world(Settings(body_limit_bytes=1000)) as world:
        sent: list[Any] = []
        pieces = iter([b"x" * 600] * 5)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": next(pieces), "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message)

        await world.app(world.scope("POST", CONFIG_MAPS), receive, send)

        assert sent[0]["status"] == 413
        assert len(list(pieces)) == 3


async def test_missing_body_times_out(world: World) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    await world.app(world.scope("POST", CONFIG_MAPS), receive, send)

    assert sent[0]["status"] == 408


async def test_headers_over_the_limit_are_refused() -> None:
    async with a_world(Settings(header_limit_bytes=500)) as world:
        assert (
            await world.request("GET", CONFIG_MAPS, accept="application/json," * 100)
        ).code == 431


async def test_an_object_over_the_limit_is_refused() -> None:
    async with a_world(Settings(object_limit_bytes=2000)) as world:
        body = {"metadata": {"name": "a", "annotations": {"x": "y" * 3000}}}

        refused = await world.request("POST", CONFIG_MAPS, body)

        assert (refused.code, refused.json["reason"]) == (413, "RequestEntityTooLarge")


async def test_invalid_protobuf_is_refused_with_a_message(world: World) -> None:
    kind = "application/vnd.kubernetes.protobuf"
    refused = await world.request("POST", CONFIG_MAPS, b"k8s\0", content_type=kind)

    assert refused.code == 400
    assert "empty body" in refused.message


def test_json_sent_as_yaml_is_accepted() -> None:
    assert bodies.from_yaml(b'{"most": 1e3, "when": "2026-01-01"}') == {
        "most": 1000,
        "when": "2026-01-01",
    }
    assert bodies.from_yaml(b"{least: 1}") == {"least": 1}


async def test_yaml_with_aliases_is_refused(world: World) -> None:
    bomb = b"metadata: {name: a, labels: &x {a: b}, annotations: *x}\n"
    refused = await world.request("POST", CONFIG_MAPS, bomb, content_type="application/yaml")

    assert refused.code == 400


async def test_deep_nesting_is_refused(world: World) -> None:
    deep = b'{"metadata":{"name":"a"},"data":' + b"[" * 50_000 + b"]" * 50_000 + b"}"

    assert (await world.request("POST", CONFIG_MAPS, deep)).code == 400
    await world.create(CONFIG_MAPS, a_config_map("a"))
    nested = b'{"data":' + b'{"a":' * 900 + b"1" + b"}" * 901
    patched = await world.request("PATCH", f"{CONFIG_MAPS}/a", nested, content_type=MERGE)
    assert patched.code in {400, 422}


async def test_a_full_disk_is_reported(world: World) -> None:

    async def refuse(*_args: object) -> None:
        raise StorageUnavailable("no space left on device")

    world.store.write = refuse  # type: ignore[method-assign, assignment]

    refused = await world.request("POST", CONFIG_MAPS, a_config_map("a"))

    assert refused.code == 507
    assert (await world.get(CONFIG_MAPS)).code == 200


async def test_a_warning_cannot_forge_a_header(world: World) -> None:
    body = {"metadata": {"name": "a"}, 'x"\r\nset-cookie: é': 1}

    reply = await world.request("POST", CONFIG_MAPS, body)

    (warning,) = reply.header("warning")
    assert reply.code == 201
    assert warning.isascii()
    assert warning.isprintable()


async def test_no_text_of_a_warning_can_forge_a_header() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await send_response(send, Response(b"{}"), ['a "b"\r\nset-cookie: é'])

    warnings = [value for name, value in sent[0]["headers"] if name == b"warning"]
    assert warnings == [b'299 - "a \\"b\\"  set-cookie: \\\\xe9"']


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "metadata",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "spec",
        "status",
        "kind",
        "apiVersion",
        "data",
        "type",
        "containers",
        "color",
        "replicas",
        "op",
        "path",
        "value",
        "from",
    ]
)
NEARLY = st.recursive(
    JUNK
    | st.sampled_from(["a", "w", "v1", "ConfigMap", "example.com/v1", "Widget", "add", "/data/k"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=15,
)
PATHS = st.sampled_from(
    [
        CONFIG_MAPS,
        f"{CONFIG_MAPS}/a",
        WIDGETS,
        f"{WIDGETS}/w",
        f"{WIDGETS}/w/status",
        f"{WIDGETS}/w/scale",
        PODS,
        f"{PODS}/p",
        f"{PODS}/p/status",
        CRDS,
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/apis/events.k8s.io/v1/namespaces/t/events",
        "/apis/coordination.k8s.io/v1/namespaces/t/leases",
    ]
)
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "limit",
                "continue",
                "resourceVersion",
                "resourceVersionMatch",
                "labelSelector",
                "fieldSelector",
                "dryRun",
                "fieldValidation",
                "fieldManager",
                "propagationPolicy",
                "gracePeriodSeconds",
                "force",
            ]
        ),
        st.sampled_from(
            [
                "",
                "0",
                "1",
                "-1",
                "x",
                "All",
                "Strict",
                "Exact",
                "a=b",
                "metadata.name=a",
                "%00",
                "%FF",
                "eyJ2Ijo",
            ]
        ),
    ),
    max_size=3,
)


@given(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
    PATHS,
    QUERIES,
    NEARLY | st.binary(max_size=20),
    st.sampled_from([None, "application/json", "application/yaml", MERGE, JSON_PATCH, "x/y", ""]),
)
def test_invalid_requests_are_refused_and_change_nothing(
    method: str, path: str, query: list[tuple[str, str]], body: Any, kind: str | None
) -> None:
    async def scenario() -> None:
        async with a_world() as world:
            await world.create(CRDS, widget_crd())
            await world.create(CONFIG_MAPS, a_config_map("a"))
            await world.create(WIDGETS, a_widget("w"))
            await world.create(PODS, a_pod("p"))
            before = world.store.revision
            text = "&".join(f"{key}={value}" for key, value in query)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()

            reply = await world.request(method, f"{path}?{text}", data, content_type=kind)

            assert reply.code != 500 or reply.json.get("reason") != "InternalError", reply.body
            if reply.code >= 400:
                assert world.store.revision == before
                assert method == "HEAD" or reply.json["kind"] == "Status"

    virtual_time.run(scenario())
