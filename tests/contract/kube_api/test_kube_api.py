"""Every case on every server: the embedded one answers as a real kube-apiserver did, and the real one still does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import virtual_time
from tests.contract.kube_api import tables, targets
from tests.contract.kube_api.comparison import accepted, allowed
from tests.contract.kube_api.tables import Case, Json
from tools.kube import control_plane, pytest_plugin
from tools.kube.control_plane import RealCluster
from tools.kube.flags import Options

CASES = [pytest.param(case, id=case.id) for case in tables.cases()]


@pytest.mark.parametrize("case", CASES)
def test_the_embedded_server_answers_as_the_real_one_did(case: Case) -> None:
    async def run() -> list[Json]:
        async with targets.in_process(virtual_time.clock()) as target:
            return await target.run(case)

    answers = virtual_time.run(run())

    assert _expected(case) == accepted(case, answers)


def test_the_embedded_server_answers_the_same_over_http(tmp_path: Path) -> None:
    async def run() -> dict[str, list[Json]]:
        async with targets.over_http(tmp_path, controllers=False) as target:
            return await target.run_all(tables.cases())

    _agree(tables.cases(), asyncio.run(run()))


def test_the_embedded_server_answers_the_same_with_controllers(tmp_path: Path) -> None:
    async def run() -> dict[str, list[Json]]:
        async with targets.over_http(tmp_path, controllers=True) as target:
            return await target.run_all(tables.controller_safe_cases())

    _agree(tables.controller_safe_cases(), asyncio.run(run()))


@pytest.mark.tier("cluster")
def test_the_real_server_still_answers_as_recorded(pytestconfig: pytest.Config) -> None:
    options = Options(controller_manager=False, scheduler=False, durable=False)
    pytest_plugin.prepare(pytestconfig, *options.servers)

    # Without controllers no other client changes what a case has just written.
    with control_plane.running(options, purpose="kube-api") as server:
        _agree(tables.cases(), asyncio.run(_run_on_real(server.kubeconfig, tables.cases())))


@pytest.mark.tier("cluster")
def test_the_real_server_answers_the_same_with_controllers(real_cluster: RealCluster) -> None:
    answers = asyncio.run(_run_on_real(real_cluster.kubeconfig, tables.controller_safe_cases()))

    _agree(tables.controller_safe_cases(), answers)


async def _run_on_real(kubeconfig: Path, cases: Sequence[Case]) -> dict[str, list[Json]]:
    async with targets.real(kubeconfig) as target:
        return await target.run_all(cases)


def _agree(cases: Sequence[Case], answers: Mapping[str, list[Json]]) -> None:
    differing = [case for case in cases if _expected(case) != accepted(case, answers[case.id])]
    names = [case.id for case in differing]
    for case in differing:
        # One difference is enough to see why; the names show whether it concerns one case or all.
        assert _expected(case) == accepted(case, answers[case.id]), f"{case.id} of {names}"


def _expected(case: Case) -> Any:
    return accepted(case, tables.answers(case.group)[case.name])


def test_every_difference_is_about_cases_that_exist() -> None:
    known = {case.id for case in tables.cases()}

    named = {name for difference in tables.differences() for name in difference.cases}

    assert named <= known


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.id) for case in tables.cases() if allowed(case)]
)
def test_a_documented_difference_is_still_one(case: Case) -> None:
    async def run() -> list[Json]:
        async with targets.in_process(virtual_time.clock()) as target:
            return await target.run(case)

    answers = virtual_time.run(run())

    assert tables.answers(case.group)[case.name] != answers
