"""The targets of these tests."""

from __future__ import annotations

import pytest

from tests.contract.programs.targets import REAL, SIMULATED


@pytest.fixture(params=[REAL, SIMULATED])
def target(request: pytest.FixtureRequest) -> str:
    """Return the name of the target."""
    name: str = request.param
    return name
