from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.unit.agent.pods.world import World, a_world


@pytest.fixture
def world(tmp_path: Path) -> AbstractAsyncContextManager[World]:
    return a_world(tmp_path)
