"""The reference of the file of `bramley host` names every field and every step, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from bramley.app.host_config import File, HostConfig
from bramley.host import preparation, sequence
from tests.meta.documents import ROOT

FIELDS, _, STEPS = (ROOT / "docs/reference/host-config.md").read_text().partition("\n## Steps\n")
_FIRST_CELL = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)


def fields_of(table: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    """Yield the fields of a table as people write them, those of the tables in it behind a dot."""
    for field in msgspec.structs.fields(table):
        name = prefix + field.encode_name
        kinds = [field.type, *getattr(field.type, "__args__", ())]
        inner = [each for each in kinds if isinstance(each, type)]
        tables = [each for each in inner if issubclass(each, msgspec.Struct) and each is not File]
        yield from fields_of(tables[0], f"{name}.") if tables else (name,)


def field_names(cell: str) -> Iterator[str]:
    """Yield the fields of a cell; one that begins with a dot is of the same table as the first."""
    names = re.findall(r"`([^`]+)`", cell)
    table = names[0].partition(".")[0]
    yield from (table + name if name.startswith(".") else name for name in names)


def test_every_field_is_explained_and_no_other() -> None:
    explained = [name for cell in _FIRST_CELL.findall(FIELDS) for name in field_names(cell)]

    assert sorted(explained) == sorted(fields_of(HostConfig))


def test_every_step_is_explained_in_its_order() -> None:
    assert tuple(cell.strip("`") for cell in _FIRST_CELL.findall(STEPS)) == sequence.NAMES


def test_the_steps_of_a_preparation_are_named() -> None:
    [named] = re.findall(r"^`bramley host prepare` knows (.*) only\.$", STEPS, re.MULTILINE)

    assert tuple(re.findall(r"`([^`]+)`", named)) == preparation.NAMES
