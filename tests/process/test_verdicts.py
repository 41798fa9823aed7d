"""A run of tests gives a verdict that can be repeated, and holds what was left open against the module that left it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A ring holds the socket, so that only the collector of garbage finds it.
LEAKING = """
import socket

def test_leaks():
    ring = [socket.socket()]
    ring.append(ring)

def test_its_neighbour():
    pass
"""
MEETING = """
import asyncio
import pytest

pytestmark = pytest.mark.side_by_side
meeting = asyncio.Barrier(2)

async def test_one():
    await meeting.wait()

async def test_other():
    await meeting.wait()
    raise ValueError("the other's own")
"""
SAYING = """
import pytest

@pytest.mark.parametrize("number", (1, 2, 4))
def test_says(number, tell):
    tell("what was said", "{} in all", number)
"""
# The crowd leaves a file behind: whoever finds it is not the first.
CROWDED = """
from pathlib import Path

def test_crowded():
    first = Path(__file__).with_suffix(".first")
    if not first.exists():
        first.touch()
        raise ValueError("who is faster?")
"""
FAILING = "def test_fails():\n    raise ValueError('always')\n"
TIDY = "".join(f"def test_{number}():\n    pass\n\n" for number in range(12))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project of two modules that is run as this one is."""
    unit = tmp_path / "tests/unit"
    unit.mkdir(parents=True)
    shutil.copy(ROOT / "tests/conftest.py", tmp_path / "tests/conftest.py")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    (unit / "test_tidy.py").write_text(TIDY)
    return tmp_path


def run(project: Path, *arguments: str, env: Mapping[str, str], code: int = 0) -> str:
    here = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    # Within a lane the variables of the run around would give every order the same seed.
    outside = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
    fresh = {"PYTHONPATH": here, "TIERS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *arguments],
        cwd=project,
        env={**outside, **fresh, **env},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def order(told: str) -> list[str]:
    return re.findall(r"::(\w+) PASSED", told)


def test_what_a_module_leaves_open_is_held_against_it(project: Path) -> None:
    (project / "tests/unit/test_leaking.py").write_text(LEAKING)
    files = ("tests/unit/test_leaking.py", "tests/unit/test_tidy.py")

    told = run(project, "-p", "no:randomly", *files, env={"CI": ""}, code=1)

    assert re.findall(r"^ERROR (\S+)::", told, re.MULTILINE) == ["tests/unit/test_leaking.py"]
    assert "unclosed <socket.socket" in told
    assert len(order(told)) == 14


def test_tests_that_run_side_by_side_each_end_in_their_own_way(project: Path) -> None:
    (project / "tests/unit/test_meeting.py").write_text(MEETING)

    told = run(project, "tests/unit/test_meeting.py", env={"CI": ""}, code=1)

    assert "::test_one PASSED" in told
    assert re.findall(r"^FAILED (\S+)", told, re.MULTILINE) == [
        "tests/unit/test_meeting.py::test_other"
    ]
    assert "the other's own" in told


def test_in_ci_the_order_is_the_same_each_time_and_can_be_repeated_elsewhere(project: Path) -> None:
    first, second = (run(project, env={"CI": "true"}) for _ in range(2))
    (told,) = re.findall(r"repeat it with (--randomly-seed=\d+)", first)
    elsewhere = run(project, told, env={"CI": ""})

    assert len(order(first)) == 12
    assert order(first) == order(second) == order(elsewhere)


def test_several_processes_tell_and_count_as_one(project: Path) -> None:
    saying = "tests/unit/test_saying.py", "tests/process/test_saying.py"
    for path in saying:
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text(SAYING)

    told = run(project, "-n", "2", env={"CI": "true"})

    assert re.findall(r"^\d+ in all$", told, re.MULTILINE) == ["14 in all"]
    assert re.findall(r"^process +(.+)$", told, re.MULTILINE) == ["3 passed"]
    assert re.findall(r"^unit +(.+)$", told, re.MULTILINE) == ["15 passed"]
    paths = (*saying, "tests/unit/test_tidy.py")
    workers = [set(re.findall(rf"\[(gw\d)\].* {path}", told)) for path in paths]
    assert [len(each) for each in workers] == [1, 1, 1], told
    assert set.union(*workers) == {"gw0", "gw1"}, told


def failed(told: str) -> list[str]:
    return re.findall(r"^(?:FAILED|ERROR) (\S+)::", told, re.MULTILINE)


def written(project: Path, *modules: str, text: str) -> None:
    for module in modules:
        path = project / "tests" / module
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def test_what_fails_beside_other_lanes_and_passes_alone_is_told_in_full(project: Path) -> None:
    written(project, "process/test_crowded.py", text=CROWDED)

    told = run(project, "-n", "2", env={"CI": "true"})

    assert failed(told) == []
    assert "failed in the crowd, passed alone: tests/process/test_crowded.py::test_crowded" in told
    assert "who is faster?" in told
    assert re.findall(r"^process +(.+)$", told, re.MULTILINE)[-1] == "1 passed alone"
    assert re.search(r"12 passed, 1 passed alone in", told.splitlines()[-1])


def test_what_fails_alone_as_well_has_failed(project: Path) -> None:
    written(project, "process/test_crowded.py", text=CROWDED)
    written(project, "process/test_failing.py", text=FAILING)

    told = run(project, "-n", "2", env={"CI": "true"}, code=1)

    assert set(failed(told)) == {f"tests/process/test_{name}.py" for name in ("failing", "crowded")}
    assert "a second look" in told


@pytest.mark.parametrize(
    "modules",
    [
        ("unit/test_crowded.py",),
        ("unit/test_crowded.py", "process/test_crowded2.py"),
        tuple(f"process/test_crowded{number}.py" for number in range(4)),
    ],
    ids=["that computes", "beside one that computes", "of too many"],
)
def test_nothing_else_gets_a_second_look(project: Path, modules: tuple[str, ...]) -> None:
    written(project, *modules, text=CROWDED)

    told = run(project, "-n", "2", env={"CI": "true"}, code=1)

    assert set(failed(told)) == {f"tests/{module}" for module in modules}
    assert "a second look" not in told
