"""How tests run: coroutines under virtual time unless a test needs the real one, and tiers by folder.

A tier is what a test needs besides Python. `TIERS=unit,process` chooses; a tier that cannot run is skipped with the reason
and the command that helps, and fails when `CI=true`.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from hypothesis import Phase, settings

from bramley.base import virtual_time
from tools import lanes, second_look, telling, tiers

TESTS = Path(__file__).parent
REAL_TIME_TIERS = {"contract", "process", "cluster"}
Ends = dict[str, BaseException | None]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
ENDED = pytest.StashKey[Ends]()
SIDE_BY_SIDE = "side_by_side: coroutines that mostly wait, and share their fixtures: those of a module run all at once"
LONG = "long: all cases of what a test beside it shows by some; `make test-fast` leaves it out, `make test` does not"
pytest_plugins = ["tools.kube.pytest_plugin"]  # the fixtures real_cluster and kubectl

# No deadlines: a slow machine is no bug. In CI the same commit must give the same verdict, so there the examples and the order
# are fixed; everywhere else each run looks at new ones, and a failure prints the line that repeats it.
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
        # The innermost mark comes first, so a parameter may ask for more than its folder does.
        return str(marks[0].args[0])
    return folder_of(item.path)


@functools.cache
def folder_of(path: Path) -> str:
    """Return the folder of `tests/` in which a module stands; asked several times for each test."""
    return path.relative_to(TESTS).parts[0]


def target_of(item: pytest.Item) -> str:
    """Return which side of a seam a contract test asks, with the name of its suite; empty for other tests."""
    target = getattr(item, "callspec", None) and item.callspec.params.get("target")  # type: ignore[attr-defined]
    return f"contract {item.path.parent.name} on {target}" if isinstance(target, str) else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    try:
        wanted = tiers.chosen(os.environ.get("TIERS", ""))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    left_out = [item for item in items if tier_of(item) not in wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if tier_of(item) in wanted]
    if hasattr(config, "workerinput"):  # this process is one of several
        lanes.in_order(items)


def pytest_collection_finish() -> None:
    """Leave out what is imported by now wherever garbage is looked for: it lives as long as the process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def garbage_is_found_here() -> Iterator[None]:
    """Collect what a module left behind: what was not closed is then held against it, not against a later one."""
    yield
    gc.collect()
    # What still lives is shared with later modules and need not be looked through at the end of each.
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


def called(item: pytest.Function, given: pytest.Function) -> Coroutine[Any, Any, None]:
    """Call a test with the fixtures that one of its neighbours, or itself, was given."""
    names = item._fixtureinfo.argnames
    call: Coroutine[Any, Any, None] = item.obj(**{name: given.funcargs[name] for name in names})
    return call


def run_side_by_side(item: pytest.Function, run: Run) -> None:
    """Run the marked tests of a module that have the same parameters all at once, and tell each how it ended."""
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.user_properties.append((telling.TIER, tier_of(item)))
    if target := target_of(item):
        report.user_properties.append((telling.TARGET, target))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    in_ci = os.environ.get("CI") == "true"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if in_ci else "default"))
    if in_ci and config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = CI_ORDER
    for mark in (SIDE_BY_SIDE, LONG):
        config.addinivalue_line("markers", mark)
    # Garbage is looked for at the end of each module, so there need not be hundreds of looks in between.
    gc.set_threshold(20_000, 20, 20)
    for plugin in (lanes, telling, telling.Summary()):
        config.pluginmanager.register(plugin)
    if config.getoption("numprocesses", None):  # this process hands the tests to others
        config.pluginmanager.register(second_look.SecondLook(config))
