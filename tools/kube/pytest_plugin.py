"""Fixtures for tests that need a real control plane; one for the whole session is started for the first test that needs it.

Every run of pytest loads this file, so its imports are inside the fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tools.kube.control_plane import RealCluster


def prepare(config: pytest.Config, *names: str) -> None:
    """Build what is not built yet, with its progress shown rather than captured: it may take minutes."""
    from tools.kube import go_build

    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        go_build.ensure(names)


@pytest.fixture(scope="session")
def kubectl(pytestconfig: pytest.Config) -> Path:
    """Return the path of a kubectl of the control plane's version."""
    from tools.kube import programs

    prepare(pytestconfig, "kubectl")
    return programs.path_of("kubectl")


@pytest.fixture(scope="session")
def real_cluster(pytestconfig: pytest.Config) -> Iterator[RealCluster]:
    """Run a whole control plane, shared by all tests of this pytest process; each deletes only its own objects."""
    with _running(pytestconfig, purpose="pytest") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def lone_cluster(pytestconfig: pytest.Config) -> Iterator[RealCluster]:
    """Run a whole control plane for the tests of one module that cannot share: it has only their own Nodes.

    No kubelet runs on these Nodes, so they send no heartbeats; the long grace periods keep them ready during a test.
    """
    grace_periods = ("--node-monitor-grace-period=1h", "--node-startup-grace-period=1h")
    with _running(
        pytestconfig, purpose="alone", extra={"kube-controller-manager": grace_periods}
    ) as cluster:
        yield cluster


@contextmanager
def _running(
    config: pytest.Config, *, purpose: str, extra: Mapping[str, tuple[str, ...]] | None = None
) -> Iterator[RealCluster]:
    from tools.kube import control_plane
    from tools.kube.flags import Options

    options = Options(durable=False, extra=extra or {})
    prepare(config, *options.servers, "kubectl")
    with control_plane.running(options, purpose=purpose) as cluster:
        yield cluster
