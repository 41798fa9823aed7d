"""Draws stories: what happens often is drawn often, and everything shrinks towards less of it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.scenarios.agent_machine import steps
from tests.scenarios.agent_machine.line import Condition, Mishap
from tests.scenarios.agent_machine.machine import NAMES, Step

# One in so many steps is the last; a story that fails shrinks by ending earlier.
_END = 120

_names = st.sampled_from(NAMES)
_lags = st.sampled_from([0.0, 0.3, 3.0])
_times = st.sampled_from([1, 2, 3, None])
_faults = st.builds(steps.Break, st.sampled_from(list(steps.FAULTS)), _times)
_kinds = st.sampled_from(["works", "fails", "works long"]) | st.sampled_from(list(steps.KINDS))

# How often each is drawn, of all; the first is what others shrink to, and no story is without the first two.
_OFTEN: Sequence[tuple[int, st.SearchStrategy[Step]]] = (
    (6, st.builds(steps.Wait, st.sampled_from([0.2, 1.0, 2.0, 4.0, 10.0, 30.0, 120.0]))),
    (6, st.builds(steps.Create, _names, _kinds)),
    (3, st.builds(steps.Delete, _names, st.sampled_from([None, None, 0, 3]))),
    (4, _faults),
    (2, st.builds(steps.Kill, st.integers(0, 30), st.sampled_from([1.0, 20.0]))),
    (2, st.builds(steps.Heal)),
    (1, st.builds(steps.Spoil, st.sampled_from(Mishap), st.integers(1, 4))),
    (1, st.builds(steps.Connect, st.sampled_from(Condition))),
    (1, st.builds(steps.Disconnect, st.integers(0, 2)) | st.builds(steps.Lag, _lags)),
    (1, st.builds(steps.Reboot) | st.builds(steps.Stop)),
    (1, st.builds(steps.LoseSession, st.booleans()) | st.builds(steps.DeleteNode)),
    (1, st.builds(steps.SetTime, st.sampled_from([-1.0, 1.0, 30.0]))),
    (1, st.builds(steps.LeakSlot) | st.builds(steps.FillDisk, st.sampled_from([0, 459]))),
    (1, st.builds(steps.TearAway, _names)),
    (1, st.builds(steps.KillProcess, st.sampled_from(["guest", "tart", "supervisor"]))),
    (1, st.builds(steps.SpoilRecord, st.sampled_from([0, 60]))),
    (1, st.builds(steps.MakeByHand) | st.builds(steps.PushByHand, st.booleans())),
    (1, st.builds(steps.RunByHand) | st.builds(steps.StopByHand)),
)
_ALWAYS = 2


@st.composite
def stories(draw: st.DrawFn, *, longest: int) -> list[Step]:
    """Draw a story of at most so many steps; some kinds of steps are left out of it, so that others come together more often."""
    left_out = draw(st.sets(st.integers(_ALWAYS, len(_OFTEN) - 1)))
    chosen = [each for number, each in enumerate(_OFTEN) if number not in left_out]
    deeds = [deed for often, deed in chosen for _ in range(often)]
    story: list[Step] = []
    while len(story) < longest and draw(st.integers(0, _END - 1)):
        # Drawn in two, because hypothesis would give each alternative the same chance.
        story.append(draw(draw(st.sampled_from(deeds))))
    return story
