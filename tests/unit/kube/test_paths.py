from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.core import Namespace, Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors
from bramley.kube import paths


def test_paths_of_core_and_grouped_kinds() -> None:
    assert paths.of_collection(Pod.resource) == "/api/v1/pods"
    assert paths.of_collection(Pod.resource, "ns") == "/api/v1/namespaces/ns/pods"
    assert paths.of_object(Namespace.resource, "ns") == "/api/v1/namespaces/ns"
    assert (
        paths.of_object(RunnerPool.resource, "p", namespace="ns", subresource="status")
        == "/apis/tuist.dev/v1alpha1/namespaces/ns/runnerpools/p/status"
    )


@pytest.mark.parametrize(
    "hostile", ["", ".", "..", "a/b", "../secrets", "a%2fb", "a\nb", "a\x00b", "x" * 300]
)
def test_a_name_that_would_lead_elsewhere_is_refused(hostile: str) -> None:
    with pytest.raises(errors.BadRequest):
        paths.of_object(Pod.resource, hostile, namespace="ns")
    with pytest.raises(errors.BadRequest):
        paths.of_object(Pod.resource, "name", namespace=hostile)
    with pytest.raises(errors.BadRequest):
        paths.of_object(Pod.resource, "name", namespace="ns", subresource=hostile)
    with pytest.raises(errors.BadRequest):
        paths.of_collection(Pod.resource, hostile)


@given(st.text(min_size=1, max_size=40))
def test_whatever_passes_stays_one_segment(name: str) -> None:
    try:
        path = paths.of_object(Pod.resource, name, namespace="ns")
    except errors.BadRequest:
        return
    assert path.startswith("/api/v1/namespaces/ns/pods/")
    assert path.count("/") == 6
    assert path.isascii()
    assert not set(path) & set("?#\\ ")


def test_colons_of_rbac_names_stay_readable() -> None:
    path = paths.of_object(Namespace.resource, "system:controller")
    assert path == "/api/v1/namespaces/system:controller"


def test_scope_and_namespace_must_fit() -> None:
    with pytest.raises(errors.BadRequest, match="lives in a namespace"):
        paths.of_object(Pod.resource, "name")
    with pytest.raises(errors.BadRequest, match="lives in no namespace"):
        paths.of_object(Namespace.resource, "name", namespace="ns")
    with pytest.raises(errors.BadRequest, match="lives in a namespace"):
        paths.of_namespace(Pod.resource, None)
