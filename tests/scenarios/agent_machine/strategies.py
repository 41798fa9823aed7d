"""Hypothesis strategies for scenarios: frequent steps are drawn often, and everything shrinks towards fewer and milder steps."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.scenarios.agent_machine import steps
from tests.scenarios.agent_machine.machine import NAMES, Step
from tests.scenarios.agent_machine.network import LinkState, WriteFault

# One in so many steps is the last; a failing scenario shrinks by ending earlier.
_END = 120

_names = st.sampled_from(NAMES)
_lags = st.sampled_from([0.0, 0.3, 3.0])
_times = st.sampled_from([1, 2, 3, None])
_faults = st.builds(steps.Break, st.sampled_from(list(steps.FAULTS)), _times)
_kinds = st.sampled_from(["works", "fails", "works long"]) | st.sampled_from(list(steps.KINDS))

# The weight of each step; the others shrink to the first, and every scenario may use the first two.
_WEIGHTED: Sequence[tuple[int, st.SearchStrategy[Step]]] = (
    (6, st.builds(steps.Wait, st.sampled_from([0.2, 1.0, 2.0, 4.0, 10.0, 30.0, 120.0]))),
    (6, st.builds(steps.Create, _names, _kinds)),
    (3, st.builds(steps.Delete, _names, st.sampled_from([None, None, 0, 3]))),
    (4, _faults),
    (2, st.builds(steps.Kill, st.integers(0, 30), st.sampled_from([1.0, 20.0]))),
    (2, st.builds(steps.Heal)),
    (1, st.builds(steps.FailWrites, st.sampled_from(WriteFault), st.integers(1, 4))),
    (1, st.builds(steps.Connect, st.sampled_from(LinkState))),
    (1, st.builds(steps.Disconnect, st.integers(0, 2)) | st.builds(steps.Lag, _lags)),
    (1, st.builds(steps.Reboot) | st.builds(steps.Stop)),
    (1, st.builds(steps.LoseSession, st.booleans()) | st.builds(steps.DeleteNode)),
    (1, st.builds(steps.SetTime, st.sampled_from([-1.0, 1.0, 30.0]))),
    (1, st.builds(steps.LeakSlot) | st.builds(steps.FillDisk, st.sampled_from([0, 459]))),
    (1, st.builds(steps.ForceDelete, _names)),
    (1, st.builds(steps.KillProcess, st.sampled_from(["guest", "tart", "supervisor"]))),
    (1, st.builds(steps.DamageRecord, st.sampled_from([0, 60]))),
    (1, st.builds(steps.CreateManually) | st.builds(steps.PushManually, st.booleans())),
    (2, st.builds(steps.RunManually, st.booleans()) | st.builds(steps.StopManually)),
)
_ALWAYS = 2


@st.composite
def scenarios(draw: st.DrawFn, *, longest: int) -> list[Step]:
    """Draw a scenario of at most so many steps; some kinds of steps are left out, so that the others meet more often."""
    left_out = draw(st.sets(st.integers(_ALWAYS, len(_WEIGHTED) - 1)))
    selected = [each for number, each in enumerate(_WEIGHTED) if number not in left_out]
    steps_by_weight = [step for weight, step in selected for _ in range(weight)]
    scenario: list[Step] = []
    while len(scenario) < longest and draw(st.integers(0, _END - 1)):
        # Drawn in two, because hypothesis gives each alternative the same probability.
        scenario.append(draw(draw(st.sampled_from(steps_by_weight))))
    return scenario
