"""Which tests of a run in several processes keep to one lane: those that wait for real processes, apart from those that compute.

`make test` runs three lanes on any machine. What needs a real control plane shares one and goes one after the other, so does what
starts our own processes: both mostly wait, and the third lane computes meanwhile. A lane that is done helps with modules.
"""

from __future__ import annotations

import functools
from pathlib import PurePath
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

CLUSTER = "a real control plane"
PROCESSES = "processes"
# The first fitting one counts; a longer path stands before what it is part of.
_FOLDERS = {
    "tests/process/agent_life": CLUSTER,
    "tests/process": PROCESSES,
    "tests/contract": CLUSTER,
    "tests/cluster": CLUSTER,
}
# Of those that any process may run: whole worlds, and programs that are waited for.
_LONG_MODULES = ("tests/scenarios/", "tests/unit/host/rendering/")


def lane_of(test: str) -> str:
    """Return the lane that a test keeps to by its id; a module that may go anywhere is a lane of its own."""
    return _lane_of_module(test.split("::", maxsplit=1)[0])


@functools.cache
def _lane_of_module(module: str) -> str:
    folders = {str(folder) for folder in PurePath(module).parents}
    return next((lane for folder, lane in _FOLDERS.items() if folder in folders), module)


def is_free(test: str) -> bool:
    """Tell whether any process may run the test."""
    return lane_of(test) not in _FOLDERS.values()


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process of a run a lane, the long ones first."""

    def _split_scope(self, nodeid: str) -> str:
        return lane_of(nodeid)

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        # Asked after each test: what is done is forgotten, or each would count all that came before it.
        for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
            del workload[scope]
        return sum(not is_done for tests in workload.values() for is_done in tests.values())


def in_order(items: list[pytest.Item]) -> None:
    """Put first what takes long: it is given away first, and what comes last leaves no process waiting for another."""
    items.sort(key=lambda item: rank(item.nodeid))


def rank(test: str) -> int:
    """Return 0 for the long lanes, 1 for long modules that any process may run, 2 for the others."""
    if not is_free(test):
        return 0
    return 1 if test.startswith(_LONG_MODULES) else 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes:
    """Give pytest-xdist our lanes, whatever `--dist` says."""
    # The lanes have an order already; how many tests they hold says nothing about how long they take.
    config.option.loadscopereorder = False
    return Lanes(config, log)
