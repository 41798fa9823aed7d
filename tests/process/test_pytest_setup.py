"""The test run itself: a repeatable order, leaks reported for the module that leaked, and reruns of real processes only."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.programs import run_program

ROOT = Path(__file__).parents[2]
SEED = 20260101  # what tests/conftest.py sets with CI=true

# A reference cycle holds the socket, so that only the garbage collector finds it.
LEAKING = """
import socket

def test_leaks():
    ring = [socket.socket()]
    ring.append(ring)

def test_its_neighbour():
    pass
"""
BARRIER = """
import asyncio
import pytest

pytestmark = pytest.mark.side_by_side
barrier = asyncio.Barrier(2)

async def test_one():
    await barrier.wait()

async def test_other():
    await barrier.wait()
    raise ValueError("from the other test")
"""
# Fails on its first run only.
FLAKY = """
from pathlib import Path

def test_flaky():
    first = Path(__file__).with_suffix(".first")
    if not first.exists():
        first.touch()
        raise ValueError("first run")
"""
FAILING = "def test_fails():\n    raise ValueError('always')\n"
TIDY = "".join(f"def test_{number}():\n    pass\n\n" for number in range(12))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create a project of one module that is configured like this one."""
    unit = tmp_path / "tests/unit"
    unit.mkdir(parents=True)
    for name in ("conftest.py", "core_manager.py", "virtual_time.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    (unit / "test_tidy.py").write_text(TIDY)
    return tmp_path


def run(project: Path, *arguments: str, env: Mapping[str, str], code: int = 0) -> str:
    here = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    # The variables of an outer pytest-xdist worker would give every order the same seed.
    outside = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
    fresh = {"PYTHONPATH": here, "TIERS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    done = run_program(
        [sys.executable, "-m", "pytest", "-v", *arguments],
        cwd=project,
        env={**outside, **fresh, **env},
        timeout=600,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def order(output: str) -> list[str]:
    return re.findall(r"::(\w+) PASSED", output)


def test_a_leak_is_reported_for_the_module_that_leaked(project: Path) -> None:
    (project / "tests/unit/test_leaking.py").write_text(LEAKING)
    files = ("tests/unit/test_leaking.py", "tests/unit/test_tidy.py")

    output = run(project, "-p", "no:randomly", *files, env={"CI": ""}, code=1)

    assert re.findall(r"^ERROR (\S+)::", output, re.MULTILINE) == ["tests/unit/test_leaking.py"]
    assert "unclosed <socket.socket" in output
    assert len(order(output)) == 14


def test_side_by_side_tests_have_separate_outcomes(project: Path) -> None:
    (project / "tests/unit/test_barrier.py").write_text(BARRIER)

    output = run(project, "tests/unit/test_barrier.py", env={"CI": ""}, code=1)

    assert "::test_one PASSED" in output
    assert re.findall(r"^FAILED (\S+)", output, re.MULTILINE) == [
        "tests/unit/test_barrier.py::test_other"
    ]
    assert "from the other test" in output


def test_in_ci_the_order_is_the_same_each_time_and_can_be_repeated_elsewhere(project: Path) -> None:
    first, second = (run(project, env={"CI": "true"}) for _ in range(2))
    elsewhere = run(project, f"--randomly-seed={SEED}", env={"CI": ""})

    assert len(order(first)) == 12
    assert order(first) == order(second) == order(elsewhere)


def failed(output: str) -> list[str]:
    # The section of the reruns, which comes first, lists the failed ones as well.
    summary = output.rpartition("short test summary info")[2]
    return re.findall(r"^(?:FAILED|ERROR) (\S+)::", summary, re.MULTILINE)


def write_module(project: Path, module: str, text: str) -> None:
    path = project / "tests" / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


WORKERS = ("-n", "2")


def test_modules_and_groups_stay_in_one_worker(project: Path) -> None:
    for module in ("process/test_one.py", "process/test_other.py", "unit/test_single.py"):
        write_module(project, module, TIDY)

    output = run(project, *WORKERS, env={"CI": "true"})

    workers = [
        set(re.findall(rf"\[(gw\d)\].* tests/{module}", output))
        for module in ("process/test_", "unit/test_tidy.py", "unit/test_single.py")
    ]
    assert [len(each) for each in workers] == [1, 1, 1], output
    assert set.union(*workers) == {"gw0", "gw1"}, output


def test_a_test_of_real_processes_that_fails_once_is_run_again_and_counted(project: Path) -> None:
    write_module(project, "process/test_flaky.py", FLAKY)

    output = run(project, *WORKERS, env={"CI": "true"})

    assert failed(output) == []
    assert "RERUN tests/process/test_flaky.py::" in output
    assert re.search(r"13 passed, 1 rerun in", output.splitlines()[-1])


def test_a_test_of_real_processes_that_fails_twice_has_failed(project: Path) -> None:
    write_module(project, "process/test_failing.py", FAILING)

    output = run(project, *WORKERS, env={"CI": "true"}, code=1)

    assert failed(output) == ["tests/process/test_failing.py"]


def test_other_tests_are_not_run_again(project: Path) -> None:
    write_module(project, "unit/test_flaky.py", FLAKY)

    output = run(project, *WORKERS, env={"CI": "true"}, code=1)

    assert failed(output) == ["tests/unit/test_flaky.py"]
    assert "rerun" not in output.splitlines()[-1]
