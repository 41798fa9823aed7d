"""The recorded requests and answers: YAML files beside this one, shared by unit tests and by the real server's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

HERE = Path(__file__).parent
NAMES = ("definitions", "objects", "updates", "ratcheting")


def load(name: str) -> Any:
    return msgspec.yaml.decode((HERE / f"{name}.yaml").read_bytes())


def save(name: str, table: Any) -> None:
    first = "# Written by `python -m tests.contract.crd.record`, from a real kube-apiserver; the requests are edited by hand.\n"
    text = yaml.safe_dump(table, sort_keys=False, width=120, default_flow_style=None)
    (HERE / f"{name}.yaml").write_text(first + text)
