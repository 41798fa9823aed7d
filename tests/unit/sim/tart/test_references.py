"""Which names mean an image in a registry, and which can only be local."""

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
def test_what_can_be_read_as_remote_is(name: str) -> None:
    assert find_reference(name) == REMOTE[name]


@pytest.mark.parametrize("name", LOCAL)
def test_everything_else_is_local(name: str) -> None:
    assert find_reference(name) is None


@pytest.mark.parametrize("name", list(REMOTE)[1:])
def test_a_reference_is_written_as_it_was_read(name: str) -> None:
    assert str(find_reference(name)) == name
