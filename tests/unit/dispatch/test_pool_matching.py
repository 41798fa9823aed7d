from __future__ import annotations

import pytest

from bramley.dispatch.pool_matching import PoolLabels, route

MACOS = PoolLabels("macos", "tuist-macos-26", ("tuist-macos",), ("self-hosted", "macOS", "ARM64"))
XCODE = PoolLabels("xcode", "tuist-xcode", (), ("self-hosted", "xcode-26"))
TWIN = PoolLabels("twin", "TUIST-MACOS")


@pytest.mark.parametrize(
    ("labels", "pool"),
    [
        (["tuist-macos-26"], "macos"),
        (["tuist-macos"], "macos"),
        (["Tuist-MacOS", "SELF-HOSTED", "arm64"], "macos"),
        (["tuist-xcode", "xcode-26"], "xcode"),
        (["self-hosted"], ""),
        ([], ""),
        (["tuist-macos", "xcode-26"], ""),
        (["tuist-macos", "tuist-xcode"], ""),
    ],
)
def test_a_job_names_a_pool_and_only_labels_that_it_has(labels: list[str], pool: str) -> None:
    found = route(labels, [MACOS, XCODE], priority=3)

    assert found.pool == pool
    assert bool(found.problem) != bool(pool)


def test_two_matching_pools_are_refused_with_both_names() -> None:
    found = route(["tuist-macos"], [MACOS, TWIN])

    assert not found.pool
    assert "macos and twin" in found.problem


def test_the_nearest_label_is_suggested() -> None:
    assert route(["tuist-macoss"], [MACOS, XCODE]).problem.endswith("nearest label is tuist-macos")
    assert "nearest label is xcode-26" in route(["tuist-xcode", "xcode-25"], [XCODE]).problem


def test_a_job_without_labels_is_told_so() -> None:
    assert route([], [MACOS]).problem == "the job has no labels"
