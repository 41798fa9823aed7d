from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from bramley.base.clock import SystemClock
from tests import github_peer
from tests.github_peer import Peer


@pytest.fixture(params=github_peer.TARGETS)
def peer(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Peer]:
    """Return a client of a simulated GitHub, entered in the loop of the test."""
    github = github_peer.simulated_github(SystemClock())
    return github_peer.connected(github, request.param)
