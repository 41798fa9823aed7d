"""The specification of a builder: errors that name the field, and the flag of the agent that it implies."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bramley.base.errors import InvalidSpec
from bramley.base.secret import Secret
from tests.unit.host.steps import fixtures


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"organisation": "tuist/x"}, "organisation"),
        ({"organisation": "a" * 40}, "organisation"),
        ({"labels": ()}, "runner_labels"),
        ({"labels": ("a,b",)}, r"runner_labels\[0\]"),
        ({"labels": ("a", "--url")}, r"runner_labels\[1\]"),
        ({"labels": ("a" * 257,)}, r"runner_labels\[0\]"),
        ({"labels": tuple("a" for _ in range(33))}, "runner_labels '33 entries'"),
        ({"group": "-x"}, "group"),
        ({"group": "a" * 65}, "group"),
    ],
)
def test_invalid_builder_names_the_field(
    changes: dict[str, Any], field: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSpec, match=f"the actions runner: {field}"):
        fixtures.builder(tmp_path, **changes)


def test_builder_has_the_flag_of_builders(tmp_path: Path) -> None:
    assert fixtures.builder_spec(tmp_path).agent_job.is_builder is True
    with pytest.raises(InvalidSpec, match="is_builder 'false' must be true or left out"):
        fixtures.builder_spec(tmp_path, job=fixtures.JOB)


def test_name_of_a_node_may_be_too_long_for_a_runner(tmp_path: Path) -> None:
    job = dataclasses.replace(fixtures.JOB, node_name=f"{'a' * 60}.example", is_builder=None)

    with pytest.raises(InvalidSpec, match=r"node_name .* at most 64 characters"):
        fixtures.builder_spec(tmp_path, job=job)


def test_token_is_no_part_of_a_builder(tmp_path: Path) -> None:
    one, other = (fixtures.builder(tmp_path, token=Secret(text)) for text in ("A", "B"))

    assert one == other
    assert "mint" not in repr(one)
