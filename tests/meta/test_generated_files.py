"""Files that are made from code are committed as the code makes them today, and pages of metrics leave none out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from bramley.agent.metrics import AgentMetrics
from bramley.api.names import metrics as names
from bramley.runtime.metrics import RuntimeMetrics
from tests.meta.documents import ROOT, name_of
from tools import crds

GENERATED = crds.files()


@pytest.mark.parametrize("path", sorted(GENERATED), ids=name_of)
def test_a_committed_file_is_current(path: Path) -> None:
    assert path.read_text() == GENERATED[path], "run: .venv/bin/python -m tools.crds"


def test_no_committed_crd_is_left_over() -> None:
    assert {path for path in GENERATED if path.suffix == ".yaml"} == set((ROOT / "crds").iterdir())


def test_every_metric_of_the_embedded_api_is_explained() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    metrics = [each for each in vars(names).values() if isinstance(each, names.Metric)]
    own = [each.name for each in metrics if each.name.startswith(("apiserver_", "bramley_"))]

    assert own
    assert [name for name in own if f"`{name}`" not in page] == []


@pytest.mark.parametrize("declare", [RuntimeMetrics, AgentMetrics])
def test_every_metric_is_explained(declare: Callable[[CollectorRegistry], object]) -> None:
    registry = CollectorRegistry()
    declare(registry)
    page = (ROOT / "docs/reference/metrics.md").read_text()

    families = [family for family in registry.collect() if not family.name.startswith("python")]
    names = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in families
    }

    assert names
    assert {name for name in names if f"`{name}`" not in page} == set()
