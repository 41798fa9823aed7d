"""How tests run: coroutines under virtual time unless a test needs real time, tiers by folder, groups for pytest-xdist.

A tier is what a test needs in addition to Python. `TIERS=unit,process` selects tiers; a tier that cannot run is skipped with the
reason and the command that installs what is missing, and fails when `CI=true`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import pytest
from hypothesis import Phase, settings

from tests import virtual_time
from tools import tiers

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent
REAL_TIME_TIERS = {"contract", "process", "cluster"}
Ends = dict[str, BaseException | None]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
ENDED = pytest.StashKey[Ends]()
MARKERS = (
    "side_by_side: coroutines that mostly wait and share their fixtures; those of one module run concurrently",
    "soak: thousands of seeded runs, and long rolls; only `make soak` selects it",
    "live_github: calls the real GitHub with credentials of the environment; only `pytest -m live_github` selects it",
    "long: every case of a test that has a short form beside it; `make test-fast` deselects it",
    # Declared here as well, because mutants run with pytest's plugins off.
    "flaky(reruns): how often a failed test is run again",
)
# Markers of tests that run only when they are selected by name.
OPT_IN = ("soak", "live_github")
# Tests of real processes share the machine with two other workers, so a failure there gets one rerun, which the summary counts.
RERUN_TIERS = {"process", "cluster"}
# Workers wait most of the time in these groups: tests of one control plane must not run at once. First match wins.
GROUPS = {
    "tests/process/agent_life": "control-plane",
    "tests/process/machines": "machines",
    "tests/process": "processes",
    "tests/contract": "control-plane",
    "tests/cluster": "control-plane",
}
SLOW_FOLDERS = ("tests/scenarios/", "tests/unit/host/rendering/")
pytest_plugins = [
    "tools.kube.pytest_plugin",  # the fixtures real_cluster and kubectl
    "tests.core_manager",
]

# No deadlines: a slow machine is no bug. In CI the same commit must give the same verdict, so there the examples and the order
# are fixed; everywhere else each run draws new ones, and a failure prints the line that repeats it.
CI_ORDER = 20260101
settings.register_profile(
    "fast", max_examples=6, stateful_step_count=15, deadline=None, print_blob=True
)
settings.register_profile("default", max_examples=60, deadline=None, print_blob=True)
settings.register_profile(
    "ci", max_examples=60, deadline=None, print_blob=True, derandomize=True, database=None
)
# A mutant only has to be noticed: no time goes into the smallest example.
settings.register_profile(
    "mutants", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
)


def tier_of(item: pytest.Item) -> str:
    marks = list(item.iter_markers("tier"))
    if marks:
        # The innermost mark comes first, so a parameter may need more than its folder does.
        return str(marks[0].args[0])
    return folder_of(item.path)


@functools.cache
def folder_of(path: Path) -> str:
    """Return the folder of `tests/` that contains a module; cached, because each test calls it several times."""
    return path.relative_to(TESTS).parts[0]


@functools.cache
def group_of(nodeid: str) -> str:
    """Return the group of tests that one worker runs; modules outside the long groups are groups of their own."""
    module = nodeid.partition("::")[0]
    if module.endswith("_soak.py"):
        return nodeid
    found = (group for folder, group in GROUPS.items() if module.startswith(folder + "/"))
    return next(found, module)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Give each group of tests to one worker.

    pytest-xdist's own `--dist loadgroup` has no effect with pytest 9.2, which ignores the group that it adds to `_nodeid`.
    """
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    # The items are sorted by start_order already; the number of tests in a group says nothing about its duration.
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def start_order(nodeid: str) -> int:
    """Return the rank by which tests are handed out: the longest first, so that no worker finishes long after the others."""
    if group_of(nodeid) in GROUPS.values():
        return 0
    return 1 if nodeid.startswith(SLOW_FOLDERS) else 2


def pytest_itemcollected(item: pytest.Item) -> None:
    if tier_of(item) in RERUN_TIERS:
        item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    try:
        selected = tiers.selected(os.environ.get("TIERS", ""))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    left_out = [name for name in OPT_IN if name not in config.option.markexpr]
    chosen = [
        item
        for item in items
        if tier_of(item) in selected and not any(map(item.get_closest_marker, left_out))
    ]
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist
        items.sort(key=lambda item: start_order(item.nodeid))


def pytest_collection_finish() -> None:
    """Exclude everything imported by now from garbage collection: it lives as long as the process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def collect_garbage() -> Iterator[None]:
    """Collect the garbage of a module, so that a resource it did not close is reported for it and not for a later module."""
    yield
    gc.collect()
    # What still lives is shared with later modules and need not be scanned at the end of each.
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    missing = tiers.missing_for(tier_of(item))
    if not missing:
        return
    reason = f"tier {tier_of(item)} cannot run: {missing}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    real = pyfuncitem.get_closest_marker("real_time") or tier_of(pyfuncitem) in REAL_TIME_TIERS
    run: Run = asyncio.run if real else virtual_time.run
    if pyfuncitem.get_closest_marker("side_by_side"):
        run_side_by_side(pyfuncitem, run)
    else:
        run(called(pyfuncitem, pyfuncitem))
    return True


async def called(item: pytest.Function, given: pytest.Function) -> None:
    """Call a test with the fixtures of a test beside it, or its own; asynchronous ones are entered in the loop of the test."""
    async with contextlib.AsyncExitStack() as stack:
        arguments = {name: given.funcargs[name] for name in item._fixtureinfo.argnames}
        for name, value in arguments.items():
            if isinstance(value, contextlib._AsyncGeneratorContextManager):
                arguments[name] = await stack.enter_async_context(value)
        await item.obj(**arguments)


def run_side_by_side(item: pytest.Function, run: Run) -> None:
    """Run the marked tests of a module that have the same parameters all at once, and report to each its own result."""
    ended = item.session.stash.setdefault(ENDED, {})
    if item.nodeid not in ended:
        together = [each for each in item.session.items if is_beside(each, item)]
        ended |= run(all_at_once(together, item))
    if error := ended.pop(item.nodeid):
        raise error


def is_beside(one: pytest.Item, other: pytest.Function) -> TypeGuard[pytest.Function]:
    params = [getattr(getattr(each, "callspec", None), "params", None) for each in (one, other)]
    marked = one.get_closest_marker("side_by_side") is not None
    return marked and one.path == other.path and params[0] == params[1]


async def all_at_once(items: Sequence[pytest.Function], given: pytest.Function) -> Ends:
    calls = (called(each, given) for each in items)
    ends = await asyncio.gather(*calls, return_exceptions=True)
    return {each.nodeid: end for each, end in zip(items, ends, strict=True)}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    in_ci = os.environ.get("CI") == "true"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if in_ci else "default"))
    if in_ci and config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = CI_ORDER
    # Set here: as an option in pyproject.toml it would be refused where plugins are not loaded.
    config.option.rerun_show_tracebacks = True
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    # Garbage is collected at the end of each module, so the hundreds of collections in between are not needed.
    gc.set_threshold(20_000, 20, 20)
