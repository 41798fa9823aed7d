from __future__ import annotations

import pytest

from bramley.api.core import ServiceAccount
from bramley.api.meta import ObjectMeta
from bramley.api.runner_pool_status import PendingPod, Slot
from bramley.runners import reaper
from tests.unit.runners.builders import OLD, a_pool

PENDING = PendingPod(image=OLD, created_for="ScaleUp")


def an_account(slot: str) -> ServiceAccount:
    annotations = {"tuist.dev/runner-slot": slot} if slot else {}
    return ServiceAccount(metadata=ObjectMeta(name="p", annotations=annotations))


@pytest.mark.parametrize(
    ("slot", "slots", "expected"),
    [
        pytest.param("0/1", [Slot(counter=1, active=True)], False, id="is the slot's Pod"),
        pytest.param("0/1", [Slot(counter=1)], True, id="its end was noticed"),
        pytest.param("0/1", [Slot(counter=2, active=True)], True, id="has a successor"),
        pytest.param(
            "0/2", [Slot(counter=1, active=True)], False, id="newer than the status that was read"
        ),
        pytest.param("3/1", [Slot(counter=1)], False, id="slot is not in the status yet"),
        pytest.param(
            "0/1", [Slot(counter=1, active=True, pending=PENDING)], False, id="not observed yet"
        ),
        pytest.param("", [], True, id="of another controller"),
    ],
)
def test_pod_is_reaped_only_after_its_slot_was_freed(
    slot: str, slots: list[Slot], expected: bool
) -> None:
    assert reaper.is_slot_freed(an_account(slot), a_pool(slots=slots)) is expected
