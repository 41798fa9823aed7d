"""The resources that a Pod requests, container by container."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bramley.api.pod import PodSpec
from bramley.apiserver.controllers.scheduling import pod_info

MI = 1024 * 1024


def container(cpu: str = "0", **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


SIDECAR = {"restartPolicy": "Always"}
CPU: dict[str, tuple[dict[str, Any], int]] = {
    "containers add up": ({"containers": [container("1"), container("500m")]}, 1500),
    "a fraction counts as one more": ({"containers": [container("100u")]}, 1),
    "init containers run before": (
        {"containers": [container("1")], "initContainers": [container("3"), container("2")]},
        3000,
    ),
    "init containers that ask for less do not matter": (
        {"containers": [container("4")], "initContainers": [container("3")]},
        4000,
    ),
    "sidecars stay": (
        {"containers": [container("1")], "initContainers": [container("2", **SIDECAR)]},
        3000,
    ),
    "init containers run beside earlier sidecars": (
        {
            "containers": [container("1")],
            "initContainers": [container("2", **SIDECAR), container("4")],
        },
        6000,
    ),
    "a later sidecar is not there yet": (
        {
            "containers": [container("1")],
            "initContainers": [container("4"), container("2", **SIDECAR)],
        },
        4000,
    ),
    "overhead comes on top": ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
    "the pod's own word goes before that of its containers": (
        {"containers": [container("3")], "resources": {"requests": {"cpu": "1"}}},
        1000,
    ),
}


@pytest.mark.parametrize("case", CPU)
def test_cpu_request_of_a_pod(case: str) -> None:
    spec, expected = CPU[case]

    assert pod_info.pod_requests(msgspec.convert(spec, PodSpec))["cpu"] == expected


def test_bytes_are_whole_numbers() -> None:
    assert pod_info.parse_amounts({"memory": "1Gi", "pods": 3}) == {"memory": 1024 * MI, "pods": 3}


def test_scoring_assumes_requests_for_a_container_without_any() -> None:
    spec = msgspec.convert({"containers": [{"name": "a"}, container("1")]}, PodSpec)

    assert pod_info.nonzero_requests(spec) == (1100, 400 * MI)


def test_a_pod_without_containers_requests_nothing() -> None:
    """No server takes one today, but an older one may have."""
    assert pod_info.nonzero_requests(PodSpec()) == (0, 0)
