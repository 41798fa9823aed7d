from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.unit.sim.mac.simulated_macs import AgentOnMac, simulated_mac


@pytest.fixture
def host(tmp_path: Path) -> AbstractAsyncContextManager[AgentOnMac]:
    return simulated_mac(tmp_path)
