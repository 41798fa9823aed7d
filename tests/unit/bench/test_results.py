from __future__ import annotations

from datetime import date

import pytest

from bench import results
from bench.__main__ import BENCHES
from bench.report import Report


def test_page_has_ratios_goals_verdicts_day_and_versions() -> None:
    goals = {"fast": "≥ 2", "small": "≤ 1"}
    met = {"fast": True, "small": False}
    ratios = {"fast": 3.0, "small": 1.5, "other": 0.125}
    report = Report("runtime", ("",), [], ratios, {"seconds": 9.87}, goals, met)

    page = results.document([report], date(2026, 11, 15), {"python": "3.11"})

    assert "2026-11-15; python 3.11." in page
    assert "| fast | 3.00 | ≥ 2 | met |" in page
    assert "| small | 1.50 | ≤ 1 | missed |" in page
    assert "| other | 0.12 |  |  |" in page
    assert "9.87" not in page


def test_every_table_has_an_explanation() -> None:
    reports = [Report(name, (), [], {}, {}, {}, {}) for name in BENCHES]

    page = results.document(reports, date(2026, 11, 15), {})

    assert all(f"## {name}\n\n{results.EXPLANATIONS[name]}\n\n| what" in page for name in BENCHES)


def test_versions_include_ours_and_every_competitor() -> None:
    assert {"python", "bramley", "kopf", "lightkube", "kube-apiserver", "etcd"} <= set(
        results.versions()
    )


def test_an_unpinned_package_is_an_error() -> None:
    with pytest.raises(LookupError, match="kopf"):
        results.pinned("lightkube==1.0\n", "kopf")
