"""One parser reads each request for routing, authorization, audit and metrics."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth.attributes import Attributes
from bramley.apiserver.http.exchange import parse_query
from bramley.apiserver.http.request_info import RequestInfo, Target, is_watch, target_of
from bramley.apiserver.kinds import builtin_kinds
from bramley.apiserver.rest import request_options
from tests.unit.apiserver.world import World

BOB = User("bob")
CATALOG = builtin_kinds.catalog()
POD = "/api/v1/namespaces/n/pods"


def info_of(method: str, path: str) -> RequestInfo:
    """Parse a request line as it arrives: uvicorn decodes the path before the parser sees it."""
    path, _, query = path.partition("?")
    return RequestInfo.parse(method, unquote(path), parse_query(query.encode())[0])


def summary(method: str, path: str) -> str:
    found = Attributes.of(BOB, info_of(method, path))
    if found.path:
        return f"{found.verb} {found.path}"
    return f"{found.verb} {found.group}/{found.version} {found.namespace}:{found.combined_resource}:{found.name}"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", POD, "list /v1 n:pods:"),
        ("HEAD", POD, "list /v1 n:pods:"),
        ("GET", f"{POD}?watch=true", "watch /v1 n:pods:"),
        ("GET", f"{POD}?watch=1", "watch /v1 n:pods:"),
        ("GET", f"{POD}?watch=false", "list /v1 n:pods:"),
        ("GET", f"{POD}?watch=0", "list /v1 n:pods:"),
        ("GET", f"{POD}?watch=False", "watch /v1 n:pods:"),
        ("GET", f"{POD}?watch=", "watch /v1 n:pods:"),
        ("GET", f"{POD}?fieldSelector=metadata.name%3Da", "list /v1 n:pods:a"),
        ("GET", f"{POD}?fieldSelector=metadata.name%21%3Da", "list /v1 n:pods:"),
        ("GET", f"{POD}?fieldSelector=metadata.name%3Da%5C%2Cb", "list /v1 n:pods:a,b"),
        ("GET", f"{POD}?fieldSelector=metadata.name%3D..", "list /v1 n:pods:"),
        ("GET", f"{POD}?fieldSelector=%3D%3D%3D", "list /v1 n:pods:"),
        ("GET", f"{POD}/a", "get /v1 n:pods:a"),
        ("GET", f"{POD}/a?watch=1", "get /v1 n:pods:a"),
        ("GET", f"{POD}/a/log", "get /v1 n:pods/log:a"),
        ("POST", POD, "create /v1 n:pods:"),
        ("POST", f"{POD}/a/binding", "create /v1 n:pods/binding:a"),
        ("PUT", f"{POD}/a/status", "update /v1 n:pods/status:a"),
        ("PATCH", f"{POD}/a", "patch /v1 n:pods:a"),
        ("DELETE", f"{POD}/a", "delete /v1 n:pods:a"),
        ("DELETE", POD, "deletecollection /v1 n:pods:"),
        ("OPTIONS", POD, " /v1 n:pods:"),
        ("GET", "/api/v1/watch/namespaces/n/pods/a", "watch /v1 n:pods:a"),
        ("GET", "/api/v1/watch/namespaces/n/pods/a/log", "watch /v1 n:pods:a"),
        ("POST", "/api/v1/watch/namespaces/n/pods", "watch /v1 n:pods:"),
        ("GET", "/api/v1/watch", "list /v1 :watch:"),
        ("GET", "/api/v1/watch/watch", "watch /v1 :watch:"),
        ("GET", "/api/v1/proxy/nodes/a/logs", "proxy /v1 :nodes:a"),
        ("GET", "/api/v1/nodes/a/proxy/logs/x", "get /v1 :nodes/proxy:a"),
        ("GET", "/api/v1/namespaces", "list /v1 :namespaces:"),
        ("GET", "/api/v1/namespaces/n", "get /v1 n:namespaces:n"),
        ("GET", "/api/v1/namespaces/status", "get /v1 status:namespaces:status"),
        ("PUT", "/api/v1/namespaces/n/status", "update /v1 n:namespaces/status:n"),
        ("PUT", "/api/v1/namespaces/n/finalize", "update /v1 n:namespaces/finalize:n"),
        ("GET", "/api/v1/namespaces/status/pods", "list /v1 status:pods:"),
        ("GET", "/apis/apps/v1/deployments", "list apps/v1 :deployments:"),
        (
            "GET",
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
            "get apps/v1 n:deployments/scale:d",
        ),
        # One slash at the end changes nothing.
        ("GET", f"{POD}/", "list /v1 n:pods:"),
        ("GET", f"{POD}/a/", "get /v1 n:pods:a"),
        # An encoded slash separates segments as a plain one does, for every reader.
        ("GET", "/api/v1/namespaces/n%2Fpods", "list /v1 n:pods:"),
        ("GET", f"{POD}/a%2Flog", "get /v1 n:pods/log:a"),
        ("GET", f"{POD}/a%20b", "get /v1 n:pods:a b"),
        # Nothing is decoded twice.
        ("GET", f"{POD}/a%252Flog", "get /v1 n:pods:a%2Flog"),
        # Discovery documents and everything else have no resource.
        ("GET", "/api/v1", "get /api/v1"),
        ("GET", "/api/v1/", "get /api/v1/"),
        ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
        ("POST", "/apis", "post /apis"),
        ("GET", "/", "get /"),
        ("HEAD", "/livez/ping", "head /livez/ping"),
        ("GET", "/apix/v1/pods", "get /apix/v1/pods"),
        ("GET", "/API/v1/pods", "get /API/v1/pods"),
    ],
)
def test_requests_are_parsed_as_kubernetes_does(method: str, path: str, expected: str) -> None:
    assert summary(method, path) == expected


MALFORMED = [
    "//api/v1/pods",
    "/api//v1/pods",
    "/apis//v1/pods",
    "/apis/apps//deployments",
    "/api/v1//pods",
    "/api/v1/pods//",
    "/api/v1/namespaces//pods",
    "/api/v1/namespaces/n//pods",
    f"{POD}//log",
    "/api/v1/watch//pods",
    "/api/v1/./pods",
    f"{POD}/.",
    f"{POD}/..",
    f"{POD}/%2e%2e",
    "/api/v1/namespaces/../pods",
    "/api/v1/namespaces/n/pods/../../m/secrets/s",
    "api//v1/pods",
]


@pytest.mark.parametrize("path", MALFORMED)
def test_malformed_paths_name_no_resource(path: str) -> None:
    info = info_of("GET", path)

    assert not info.is_resource_request
    assert (info.verb, info.path, info.resource) == ("get", unquote(path), "")


@pytest.mark.parametrize("path", [path for path in MALFORMED if path.startswith("/api")])
async def test_malformed_paths_are_not_found(world: World, path: str) -> None:
    assert (await world.request("GET", unquote(path))).code == 404
    assert (await world.request("GET", unquote(path), acting="bob")).code == 404


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/namespaces/n", ("namespaces", "", "n", "")),
        ("/api/v1/namespaces/n/status", ("namespaces", "", "n", "status")),
        ("/api/v1/namespaces/n/pods", ("pods", "n", "", "")),
        ("/api/v1/pods?fieldSelector=metadata.name%3Da", ("pods", "", "", "")),
        ("/api/v1/nodes/a/proxy/logs/x", ("nodes", "", "a", "proxy")),
    ],
)
def test_target_is_parsed_from_the_path(path: str, expected: tuple[str, ...]) -> None:
    found = target_of(info_of("GET", path), CATALOG)

    assert (found.resource.plural, found.namespace, found.name, found.subresource) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/proxy/nodes/a",
        "/api/v1/namespaces/a/namespaces/a",
        "/api/v1/namespaces/n/nodes",
        "/api/v1/pods/a",
        f"{POD}/a/log/more",
        "/api/v2/pods",
        "/apis/apps/v1/absent",
    ],
)
def test_paths_without_a_served_resource_are_not_found(path: str) -> None:
    with pytest.raises(ApiError) as raised:
        target_of(info_of("GET", path), CATALOG)

    assert raised.value.code == 404


WORDS = ["v1", "watch", "proxy", "namespaces", "pods", "nodes", "status", "finalize", "a", "", ".."]
ROOTS = st.sampled_from(["api/v1", "apis/rbac.authorization.k8s.io/v1", "apis/events.k8s.io/v1"])
KINDS = st.sampled_from(["pods", "nodes", "namespaces", "roles", "events"])
MAYBE_WATCH = st.sampled_from([[], ["watch"]])
MAYBE_INSIDE = st.sampled_from([[], ["namespaces", "n"], ["namespaces", "status"]])
TAILS = st.lists(st.sampled_from(WORDS), max_size=3)


def target_at(path: str) -> Target | None:
    info = info_of("GET", path)
    if not info.is_resource_request:
        return None
    try:
        return target_of(info, CATALOG)
    except ApiError:
        return None


@example("api/v1", [], [], "namespaces", ["a", "finalize"])
@example("api/v1", ["watch"], ["namespaces", "n"], "pods", ["a"])
@example("api/v1", [], ["namespaces", "status"], "pods", ["a", "status"])
@given(ROOTS, MAYBE_WATCH, MAYBE_INSIDE, KINDS, TAILS)
def test_the_authorized_object_is_the_one_that_is_served(
    root: str, watch: list[str], inside: list[str], kind: str, tail: list[str]
) -> None:
    path = "/" + "/".join([root, *watch, *inside, kind, *tail])
    target = target_at(path)
    if target is None:
        return

    attributes = Attributes.of(BOB, info_of("GET", path))

    resource = target.resource
    assert (attributes.group, attributes.version, attributes.resource) == (
        resource.group,
        resource.version,
        resource.plural,
    )
    assert (attributes.name, attributes.path) == (target.name, "")
    if not target.legacy_watch:
        assert attributes.subresource == target.subresource
    if resource.namespaced:
        assert attributes.namespace == target.namespace


@given(st.sampled_from(["", "0", "1", "true", "True", "false", "False", "FALSE", "x"]))
def test_a_watch_is_authorized_as_one_if_and_only_if_it_is_served_as_one(value: str) -> None:
    assert is_watch({"watch": value}) is bool(request_options._flag({"watch": value}, "watch"))
