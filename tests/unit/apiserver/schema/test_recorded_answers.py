"""Our schemas answer every recorded question as the real kube-apiserver did; see tests/contract/crd."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bramley.apiserver.apimachinery import status
from bramley.apiserver.registry import crds
from bramley.apiserver.schema import structural
from bramley.apiserver.schema.structural import Structural
from bramley.base.errors import Cause
from tests.contract.crd import tables
from tests.contract.crd.real_server import an_object, definition, plain

DEFINITIONS = tables.load("definitions")
OBJECTS = tables.load("objects")
UPDATES = tables.load("updates")
RATCHETING = tables.load("ratcheting")


def cause_lists(causes: list[Cause] | tuple[Cause, ...]) -> list[list[str]]:
    return sorted([cause.field, cause.reason, cause.message] for cause in causes)


def outcome(compiled: Structural, spec: Any, before: Any = None) -> dict[str, Any]:
    value = an_object(copy.deepcopy(spec))
    old = None if before is None else an_object(copy.deepcopy(before))
    for one in (value, old):
        if one is not None:
            compiled.apply_defaults(one)
            compiled.prune(one)
    causes = compiled.validate(value, old)
    return {"causes": cause_lists(causes)} if causes else {"becomes": plain(value["spec"])}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    return {key: plain(case[key]) for key in ("causes", "becomes") if key in case}


@pytest.mark.parametrize("case", DEFINITIONS, ids=lambda case: str(case["schema"])[:80])
def test_definition_has_the_result_of_a_real_server(case: dict[str, Any]) -> None:
    crd = definition(copy.deepcopy(case["schema"]), plural="judgeds")
    found: tuple[Cause, ...] = ()

    try:
        crds.admit(crd, None)
    except status.ApiError as refusal:
        found = refusal.causes

    assert case["causes"] == cause_lists(found)


@pytest.fixture(scope="module")
def objects() -> Structural:
    return structural.compile(OBJECTS["schema"])


@pytest.mark.parametrize("case", OBJECTS["cases"], ids=lambda case: str(case["spec"])[:80])
def test_object_has_the_result_of_a_real_server(case: dict[str, Any], objects: Structural) -> None:
    assert answer(case) == outcome(objects, case["spec"])


@pytest.mark.parametrize("case", UPDATES["cases"], ids=lambda case: str(case["after"])[:80])
def test_update_has_the_result_of_a_real_server(case: dict[str, Any]) -> None:
    compiled = structural.compile(UPDATES["schema"])

    assert answer(case) == outcome(compiled, case["after"], case["before"])


@pytest.mark.parametrize("case", RATCHETING["cases"], ids=lambda case: str(case["change"])[:80])
def test_tighter_schema_applies_only_to_changed_fields(case: dict[str, Any]) -> None:
    compiled = structural.compile(RATCHETING["tighter"])
    after = {**RATCHETING["before"], **case["change"]}

    assert answer(case) == outcome(compiled, after, RATCHETING["before"])
