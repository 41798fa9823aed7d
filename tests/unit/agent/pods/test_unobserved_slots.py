"""The slot is not observed where it cannot change the decision, because reading all processes takes time."""

from __future__ import annotations

import dataclasses

from bramley.agent.ledger import VmState
from bramley.agent.pods.decision import decide
from tests.unit.agent.pods.combinations import every_core


def test_slot_matters_neither_to_a_claim_nor_before_the_finalizer() -> None:
    unasked = [
        seen
        for seen in every_core()
        if seen.record is VmState.CLAIMED or (seen.record is None and not seen.has_finalizer)
    ]

    with_slot = [decide(dataclasses.replace(seen, has_slot=True)) for seen in unasked]
    without = [decide(dataclasses.replace(seen, has_slot=False)) for seen in unasked]

    assert unasked
    assert with_slot == without
