"""The reference of the configuration file of `bramley host` lists all fields and steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bramley.app import host_config
from bramley.app.host_config import File, HostConfig
from bramley.host import preparation, sequence
from tests.meta.documents import ROOT

FIELDS, _, STEPS = (ROOT / "docs/reference/host-config.md").read_text().partition("\n## Steps\n")
_FIRST_CELL = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)


def fields_of(table: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    """Yield the fields of a table as they are written in the file; those of nested tables after a dot."""
    for field in msgspec.structs.fields(table):
        name = prefix + field.encode_name
        kinds = [field.type, *getattr(field.type, "__args__", ())]
        inner = [each for each in kinds if isinstance(each, type)]
        tables = [each for each in inner if issubclass(each, msgspec.Struct) and each is not File]
        yield from fields_of(tables[0], f"{name}.") if tables else (name,)


def field_names(cell: str) -> Iterator[str]:
    """Yield the fields of a cell; a name that begins with a dot belongs to the table of the first one."""
    names = re.findall(r"`([^`]+)`", cell)
    table = names[0].partition(".")[0]
    yield from (table + name if name.startswith(".") else name for name in names)


def test_reference_lists_all_fields() -> None:
    listed = [name for cell in _FIRST_CELL.findall(FIELDS) for name in field_names(cell)]

    assert sorted(listed) == sorted(fields_of(HostConfig))


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", FIELDS, re.DOTALL))
def test_example_is_valid(example: str, tmp_path: Path) -> None:
    path = tmp_path / "mac.yaml"
    path.write_text(example if "node:" in example else f"node: mac-1\n{example}")

    assert host_config.read(path).node == "mac-1"


def test_reference_lists_all_steps_in_order() -> None:
    assert tuple(cell.strip("`") for cell in _FIRST_CELL.findall(STEPS)) == sequence.NAMES


def test_reference_lists_the_steps_of_a_preparation() -> None:
    [line] = re.findall(r"^.*`bramley host prepare`.*$", STEPS, re.MULTILINE)

    assert tuple(re.findall(r"`([^` ]+)`", line)) == preparation.NAMES
