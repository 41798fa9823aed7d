from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from tests.unit.apiserver.world import World, a_world


@pytest.fixture
def world() -> AbstractAsyncContextManager[World]:
    return a_world()
