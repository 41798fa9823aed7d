"""What takes long by the clock begins with the first contract test, whichever it is, and is asked for last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.contract.node_loss import ahead
from tests.contract.node_loss.ahead import Playing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=ahead.is_story)


@pytest.fixture(scope="session", autouse=True)
def stories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Playing]]:
    """Play the stories of lost Nodes that are asked for, beside all other tests."""
    targets = ahead.wanted(request.session.items)
    with ahead.playing(request.config, targets, tmp_path_factory) as begun:
        yield begun
