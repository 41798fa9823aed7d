"""The commands that documents promise exist, and continuous integration runs what `make test` runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.meta.documents import ROOT, fenced, inline_code, markdown, name_of
from tools import tiers

MAKEFILE = ROOT / "Makefile"
WORKFLOW = ROOT / ".github/workflows/ci.yml"


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE.read_text(), re.MULTILINE))


def test_the_makefile_fits_on_one_screen() -> None:
    assert len(MAKEFILE.read_text().splitlines()) <= 60


def test_make_without_a_target_lists_every_target() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    promised = [
        "help",
        "install",
        "up",
        "test",
        "test-fast",
        "soak",
        "check",
        "fmt",
        "bench",
        "mutants",
        "lock",
        "clean",
    ]
    assert re.findall(r"^  make ([a-z-]+)", shown, re.MULTILINE) == promised
    assert set(promised) == targets()


@pytest.mark.parametrize("path", markdown(), ids=name_of)
def test_targets_in_documents_exist(path: Path) -> None:
    code = "\n".join([*fenced(path), *inline_code(path)])

    named = set(re.findall(r"^\$? ?make ([a-z-]+)", code, re.MULTILINE))

    assert named <= targets()


def test_ci_runs_only_make_test() -> None:
    script = ROOT / ".ci/run"

    lines = [line for line in script.read_text().splitlines() if not line.startswith("#")]

    assert script.stat().st_mode & 0o111
    assert lines == ['cd "$(dirname "$0")/.." || exit', "exec make test"]


def test_the_workflow_calls_ci_on_linux_and_known_tiers_on_macos() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())

    runs = {
        name: [step.get("run", "") for step in job["steps"]]
        for name, job in workflow["jobs"].items()
    }

    assert ".ci/run" in runs["linux"]
    [mac] = [run for run in runs["macos"] if run.startswith("make test TIERS=")]
    assert tiers.selected(mac.partition("TIERS=")[2])


def packages_of(tier: str) -> set[str]:
    return {program.package for program in tiers.programs_of(tier)}


def test_the_workflow_installs_what_the_tiers_need_on_linux() -> None:
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["linux"]["steps"]

    [install] = [run for step in steps if "apt-get install" in (run := step.get("run", ""))]

    assert set().union(*map(packages_of, tiers.NAMES)) <= set(install.split())


@pytest.mark.parametrize("tier", tiers.NAMES)
def test_contributing_lists_what_a_tier_needs(tier: str) -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text()

    [needs] = re.findall(rf"^\| {tier} \|.*\| ([^|]*) \|$", table, re.MULTILINE)

    assert packages_of(tier) <= set(re.findall(r"[\w-]+", needs))
