from __future__ import annotations

import dataclasses
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from tests.contract.providers import targets
from tests.contract.providers.targets import Target


@pytest.fixture(params=targets.TARGETS)
def target(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Target]:
    """Return a provider over a simulated cloud, entered in the loop of the test."""
    return targets.connected(request.param)


@pytest.fixture
def http_target() -> AbstractAsyncContextManager[Target]:
    """Return the provider over HTTP, for what only a connection has."""
    return targets.connected("scaleway-http")


@pytest.fixture(params=targets.TARGETS)
def stale_target(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Target]:
    """Return a provider over a cloud whose reads show a rename late."""
    late = timedelta(seconds=0.5)
    cloud = dataclasses.replace(
        targets.CLOUD, list_shows_old_name=2 * late, get_shows_old_name=late
    )
    return targets.connected(request.param, cloud)
