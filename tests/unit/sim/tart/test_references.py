"""Names of images in a registry, and local names."""

from __future__ import annotations

import pytest

from bramley.sim.tart.layout import Reference, find_reference

DIGEST = "sha256:" + "0f" * 32

REMOTE = {
    "ghcr.io/tuist/runner": Reference("ghcr.io", "tuist/runner", "latest"),
    "ghcr.io/tuist/runner:1.2-rc_3": Reference("ghcr.io", "tuist/runner", "1.2-rc_3"),
    f"ghcr.io/a/b/c@{DIGEST}": Reference("ghcr.io", "a/b/c", digest=DIGEST),
    "localhost:5000/a:1": Reference("localhost:5000", "a", "1"),
}
LOCAL = (
    "runner",
    "runner:1",
    "/runner",
    "ghcr.io/",
    "ghcr.io//runner",
    "ghcr.io/../runner",
    "ghcr.io/runner@sha256:12",
    f"ghcr.io/runner:1@{DIGEST}",
    "ghcr.io/rünner",
    "ghcr.io/runner:",
)


@pytest.mark.parametrize("name", REMOTE)
def test_valid_remote_names_are_references(name: str) -> None:
    assert find_reference(name) == REMOTE[name]


@pytest.mark.parametrize("name", LOCAL)
def test_other_names_are_local(name: str) -> None:
    assert find_reference(name) is None


@pytest.mark.parametrize("name", list(REMOTE)[1:])
def test_reference_round_trips(name: str) -> None:
    assert str(find_reference(name)) == name
