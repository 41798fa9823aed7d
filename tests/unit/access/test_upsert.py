from __future__ import annotations

from typing import Any

import pytest

from bramley.access import upsert
from bramley.api.core import ConfigMap
from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.api.rbac import PolicyRule, Role


def a_role(*names: str, labels: dict[str, str] | None = None) -> Role:
    rules = [PolicyRule(verbs=["get"], resources=["secrets"], resource_names=list(names))]
    return Role(metadata=ObjectMeta(name="r", namespace="ns", labels=labels or {}), rules=rules)


def an_owned(uid: str) -> Role:
    owner = OwnerReference(api_version="v1", kind="X", name="x", uid=uid)
    return Role(metadata=ObjectMeta(name="r", owner_references=[owner]), rules=[])


@pytest.mark.parametrize(
    ("current", "desired", "fields"),
    [
        (a_role("a"), a_role("a"), set()),
        (a_role("a"), a_role("b"), {"rules"}),
        (a_role("a", "b"), a_role("a"), {"rules"}),
        (a_role(), a_role("a"), {"rules"}),
        (a_role("a"), a_role(), {"rules"}),
        (a_role("a", labels={"x": "1", "y": "2"}), a_role("a", labels={"x": "1"}), set()),
        (a_role("a", labels={"x": "2"}), a_role("a", labels={"x": "1"}), {"metadata"}),
        (an_owned("old"), an_owned("new"), {"metadata"}),
    ],
)
def test_only_what_is_missing_or_differs_is_written(
    current: Role, desired: Role, fields: set[str]
) -> None:
    assert set(upsert.difference(current, desired)) == fields


def test_foreign_fields_are_kept() -> None:
    current: Any = ConfigMap(data={"a": "1", "b": "2"})

    assert upsert.difference(current, ConfigMap(data={"a": "1"})) == {}
