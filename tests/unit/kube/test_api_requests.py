from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.core import Namespace, Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors
from bramley.kube import api_requests


def test_paths_of_core_and_grouped_kinds() -> None:
    assert api_requests.collection_path(Pod.resource) == "/api/v1/pods"
    assert api_requests.collection_path(Pod.resource, "ns") == "/api/v1/namespaces/ns/pods"
    assert api_requests.object_path(Namespace.resource, "ns") == "/api/v1/namespaces/ns"
    assert (
        api_requests.object_path(RunnerPool.resource, "p", namespace="ns", subresource="status")
        == "/apis/tuist.dev/v1alpha1/namespaces/ns/runnerpools/p/status"
    )


@pytest.mark.parametrize(
    "hostile", ["", ".", "..", "a/b", "../secrets", "a%2fb", "a\nb", "a\x00b", "x" * 300]
)
def test_name_that_would_change_the_path_is_refused(hostile: str) -> None:
    with pytest.raises(errors.BadRequest):
        api_requests.object_path(Pod.resource, hostile, namespace="ns")
    with pytest.raises(errors.BadRequest):
        api_requests.object_path(Pod.resource, "name", namespace=hostile)
    with pytest.raises(errors.BadRequest):
        api_requests.object_path(Pod.resource, "name", namespace="ns", subresource=hostile)
    with pytest.raises(errors.BadRequest):
        api_requests.collection_path(Pod.resource, hostile)


@given(st.text(min_size=1, max_size=40))
def test_accepted_name_is_one_path_segment(name: str) -> None:
    try:
        path = api_requests.object_path(Pod.resource, name, namespace="ns")
    except errors.BadRequest:
        return
    assert path.startswith("/api/v1/namespaces/ns/pods/")
    assert path.count("/") == 6
    assert path.isascii()
    assert not set(path) & set("?#\\ ")


def test_colons_of_rbac_names_stay_readable() -> None:
    path = api_requests.object_path(Namespace.resource, "system:controller")
    assert path == "/api/v1/namespaces/system:controller"


def test_namespace_must_match_the_scope() -> None:
    with pytest.raises(errors.BadRequest, match="is namespaced"):
        api_requests.object_path(Pod.resource, "name")
    with pytest.raises(errors.BadRequest, match="cluster-scoped"):
        api_requests.object_path(Namespace.resource, "name", namespace="ns")
    with pytest.raises(errors.BadRequest, match="is namespaced"):
        api_requests.namespaced_path(Pod.resource, None)
