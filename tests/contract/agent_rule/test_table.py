"""The table on every server: the requests that an agent may make, and those it may not."""

from __future__ import annotations

import asyncio
import dataclasses

from tests.contract.agent_rule import table
from tests.contract.agent_rule.scene import Scene
from tests.contract.agent_rule.table import Row
from tests.contract.agent_rule.targets import Server, Target


async def test_each_request_of_the_table_gets_its_verdict(target: Target) -> None:
    async with target.scene() as (server, scene):
        answers = await asyncio.gather(*(answered(server, scene, row) for row in table.rows()))

    expected = {
        row.name: 200 if target.name == "real" and row.only_ours else row.code
        for row in table.rows()
    }
    given = {name: code for name, code, _ in answers}
    wrong = {name: body for name, code, body in answers if code != expected[name]}
    assert wrong == {}
    assert expected == given


async def answered(server: Server, scene: Scene, row: Row) -> tuple[str, int, str]:
    request = dataclasses.replace(
        row,
        path=scene.filled(row.path),
        query=scene.filled(dict(row.query)),
        body=scene.filled(row.body),
    )
    answer = await server.send(scene.token, request)
    return row.name, answer.status, f"{answer.status} {answer.body.decode()[:600]}"


def test_table_has_allowed_and_refused_rows_with_unique_names() -> None:
    rows = table.rows()

    assert len(rows) == len({row.name for row in rows})
    assert sum(row.is_refused for row in rows) >= 60
    assert sum(not row.is_refused for row in rows) >= 30


def test_only_reading_pods_differs_on_a_real_server() -> None:
    differing = [row for row in table.rows() if row.only_ours]

    assert {table.LISTS_PODS} == {row.only_ours for row in differing}
    assert all(row.method == "GET" and "/pods" in row.path for row in differing)
