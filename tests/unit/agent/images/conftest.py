from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.unit.agent.images.image_world import ImageWorld, image_world


@pytest.fixture
def world(tmp_path: Path) -> AbstractAsyncContextManager[ImageWorld]:
    return image_world(tmp_path)
