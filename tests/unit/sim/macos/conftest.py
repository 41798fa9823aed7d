from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sim.macos.harness import MacHarness


@pytest.fixture
def harness(tmp_path: Path) -> MacHarness:
    return MacHarness(tmp_path)
