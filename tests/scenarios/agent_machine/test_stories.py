"""Random stories of Pods, faults, deaths and reboots: what must never happen does not, and left in peace all comes to rest.

A story that fails is made as short as it can be and printed with its seed; put it into `test_retold.py` to keep it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.scenarios.agent_machine import machine
from tests.scenarios.agent_machine.machine import Step
from tests.scenarios.agent_machine.stories import stories
from tests.unit import example_counts

LONGEST = 50
STORIES = 130
LEAST_STEPS = 2000
# A fast run tells few: each costs as much as hundreds of other examples.
FEW = 3


def test_stories_break_nothing_and_come_to_rest() -> None:
    taken: list[int] = []
    is_whole = example_counts.share() == 1

    @settings(max_examples=STORIES if is_whole else FEW, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 2**16), story=stories(longest=LONGEST))
    def told(seed: int, story: list[Step]) -> None:
        machine.tell(story, seed=seed)
        taken.append(len(story))

    told()
    # Few stories may happen to be short ones.
    assert sum(taken) >= LEAST_STEPS * is_whole, f"only {sum(taken)} steps"
