"""Start the scenarios that take long in real time with the first contract test, and run the tests that need them last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.contract.node_loss import background
from tests.contract.node_loss.background import BackgroundRun


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=background.uses_outcomes)


@pytest.fixture(scope="session", autouse=True)
def node_loss_runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, BackgroundRun]]:
    """Run the required scenarios of lost Nodes in the background."""
    targets = background.required_targets(request.session.items)
    with background.started(request.config, targets, tmp_path_factory) as runs:
        yield runs
