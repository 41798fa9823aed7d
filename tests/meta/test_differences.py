"""The page of differences from Kubernetes is the list that the contract suite allows."""

from __future__ import annotations

import re

import yaml

from tests.meta.documents import ROOT


def test_every_allowed_difference_is_documented_and_no_other() -> None:
    allowed = yaml.safe_load((ROOT / "tests/contract/kube_api/differences.yaml").read_text())
    page = (ROOT / "docs/reference/differences.md").read_text()

    listed = re.findall(r"^- (.+)$", page, re.MULTILINE)

    assert sorted(listed) == sorted(one["reason"] for one in allowed)
