"""Which side of the seam is asked."""

from __future__ import annotations

import pytest

from tests.contract.programs.stage import REAL, SIMULATED


@pytest.fixture(params=[REAL, SIMULATED])
def target(request: pytest.FixtureRequest) -> str:
    """Return the name of the side."""
    name: str = request.param
    return name
