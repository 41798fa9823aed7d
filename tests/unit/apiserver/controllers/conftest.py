from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from bramley.kube.client import Client
from tests.unit.apiserver.controllers.cluster_world import a_cluster


@pytest.fixture
def client() -> AbstractAsyncContextManager[Client]:
    return a_cluster()
