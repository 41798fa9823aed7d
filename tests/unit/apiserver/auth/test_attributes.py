"""What a request asks for is read the same way for rights as for doing it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import User
from bramley.apiserver.auth import attributes
from bramley.apiserver.http import paths
from bramley.apiserver.http.exchange import parse_query
from bramley.apiserver.kinds import table
from bramley.apiserver.rest import options

BOB = User("bob")
CATALOG = table.catalog()
POD = "/api/v1/namespaces/n/pods"


def told(method: str, path: str) -> str:
    path, _, query = path.partition("?")
    found = attributes.of_request(BOB, method, path, parse_query(query.encode())[0])
    if found.path:
        return f"{found.verb} {found.path}"
    return f"{found.verb} {found.group}/{found.version} {found.namespace}:{found.whole_resource}:{found.name}"


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
        ("POST", "/api/v1/watch/namespaces/n/pods", "watch /v1 n:pods:"),
        ("GET", "/api/v1/namespaces", "list /v1 :namespaces:"),
        ("GET", "/api/v1/namespaces/n", "get /v1 n:namespaces:n"),
        ("PUT", "/api/v1/namespaces/n/finalize", "update /v1 n:namespaces/finalize:n"),
        ("GET", "/apis/apps/v1/deployments", "list apps/v1 :deployments:"),
        (
            "GET",
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
            "get apps/v1 n:deployments/scale:d",
        ),
        ("GET", "/api/v1", "get /api/v1"),
        ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
        ("POST", "/apis", "post /apis"),
        ("GET", "/", "get /"),
        ("HEAD", "/livez/ping", "head /livez/ping"),
    ],
)
def test_a_request_says_what_it_wants(method: str, path: str, expected: str) -> None:
    assert told(method, path) == expected


WORDS = ["v1", "watch", "proxy", "namespaces", "pods", "nodes", "status", "finalize", "a", ""]
ROOTS = st.sampled_from(["api/v1", "apis/rbac.authorization.k8s.io/v1", "apis/events.k8s.io/v1"])
KINDS = st.sampled_from(["pods", "nodes", "namespaces", "roles", "events"])
MAYBE_WATCH = st.sampled_from([[], ["watch"]])
MAYBE_INSIDE = st.sampled_from([[], ["namespaces", "n"], ["namespaces", "status"]])
TAILS = st.lists(st.sampled_from(WORDS), max_size=3)


@example("api/v1", [], [], "namespaces", ["a", "finalize"])
@example("api/v1", ["watch"], ["namespaces", "n"], "pods", ["a"])
@example("api/v1", [], ["namespaces", "status"], "pods", ["a", "status"])
@given(ROOTS, MAYBE_WATCH, MAYBE_INSIDE, KINDS, TAILS)
def test_rights_are_asked_for_the_very_thing_that_is_done(
    root: str, watch: list[str], inside: list[str], kind: str, tail: list[str]
) -> None:
    path = "/" + "/".join([root, *watch, *inside, kind, *tail])
    try:
        target = paths.find(path, CATALOG)
    except ApiError:
        return

    asked = attributes.of_request(BOB, "GET", path, {})

    resource = target.resource
    assert (asked.group, asked.version, asked.resource) == (
        resource.group,
        resource.version,
        resource.plural,
    )
    assert (asked.name, asked.path) == (target.name, "")
    if not target.legacy_watch:
        assert asked.subresource == target.subresource
    if resource.namespaced:
        assert asked.namespace == target.namespace


@given(st.sampled_from(["", "0", "1", "true", "True", "false", "False", "FALSE", "x"]))
def test_a_watch_is_one_for_rights_if_and_only_if_it_is_one(value: str) -> None:
    assert attributes.is_watch({"watch": value}) is bool(options._flag({"watch": value}, "watch"))
