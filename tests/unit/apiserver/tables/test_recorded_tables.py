"""Every recorded object has the same cells as in the response of kube-apiserver, at the time of that response."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bramley.apiserver.kinds import builtin_kinds
from bramley.apiserver.kinds.events import Renaming
from bramley.apiserver.tables import columns, custom, pods, printers
from bramley.apiserver.tables.columns import Printer

Json = dict[str, Any]
CUSTOM = "shown.example.com"
SERVED = frozenset(each.qualified for each in builtin_kinds.builtin())


@cache
def recorded() -> list[Json]:
    entries: list[Json] = json.loads((Path(__file__).parent / "recorded.json").read_text())
    return entries


def qualified(path: str) -> str:
    parts = path.strip("/").split("/")
    plural = parts[-1]
    return plural if parts[0] == "api" else f"{plural}.{parts[1]}"


def printer_for(path: str) -> Printer:
    if CUSTOM not in path:
        return printers.printer(qualified(path))
    crds = next(each for each in recorded() if "customresourcedefinitions" in each["at"])
    found = {each["object"]["spec"]["names"]["plural"]: each["object"] for each in crds["rows"]}
    version = found[path.rsplit("/", maxsplit=1)[-1]]["spec"]["versions"][0]
    return custom.printer(version.get("additionalPrinterColumns"))


ROWS = [
    pytest.param(entry, row, id=f"{qualified(entry['at'])}: {row['object']['metadata']['name']}")
    for entry in recorded()
    if qualified(entry["at"]) in SERVED or CUSTOM in entry["at"]
    for row in entry["rows"]
]


@pytest.mark.parametrize(("entry", "row"), ROWS)
def test_an_object_has_the_cells_of_the_real_server(entry: Json, row: Json) -> None:
    now = datetime.fromisoformat(entry["now"])
    shown = row["object"]
    if shown["apiVersion"] == "events.k8s.io/v1":
        shown = Renaming().to_stored(shown)

    cells = printer_for(entry["at"]).row(shown, now)

    assert row["cells"] == cells
    assert [type(each) for each in row["cells"]] == [type(each) for each in cells]


@pytest.mark.parametrize("entry", [each for each in recorded() if CUSTOM in each["at"]])
def test_a_custom_kind_has_the_columns_of_the_real_server(entry: Json) -> None:
    assert entry["columns"] == printer_for(entry["at"]).definitions


def test_ended_pods_have_row_conditions() -> None:
    rows = [row for each in recorded() if each["at"].endswith("/pods") for row in each["rows"]]

    expected = [each.get("conditions", []) for each in rows]

    assert expected == [pods.row_conditions(each["object"]) for each in rows]


def test_every_printer_has_columns_and_a_served_kind() -> None:
    assert set(printers.ROWS) <= columns.kinds() & SERVED


def test_kinds_with_columns_of_their_own_have_a_printer() -> None:
    default = columns.definitions("limitranges")
    special = {name for name in columns.kinds() & SERVED if columns.definitions(name) != default}

    assert special == set(printers.ROWS)


def test_a_row_has_as_many_cells_as_its_kind_has_columns() -> None:
    now = datetime.fromisoformat("2026-01-01T00:00:00+00:00")

    sizes = {
        name: (len(printers.printer(name).definitions), len(cells({"metadata": {}}, now)))
        for name, cells in printers.ROWS.items()
    }

    assert [name for name, (expected, found) in sizes.items() if expected != found] == []
