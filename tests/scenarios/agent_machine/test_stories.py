"""Random stories of Pods, faults, deaths and reboots: what must never happen does not, and left in peace all comes to rest.

A story that fails is made as short as it can be and printed with its seed; put it into `test_retold.py` to keep it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.scenarios.agent_machine import machine
from tests.scenarios.agent_machine.machine import Step
from tests.scenarios.agent_machine.stories import stories

LONGEST = 50
STORIES = 130
LEAST_STEPS = 2000
# The examples that a whole run has. A fast one tells few stories: each costs as much as hundreds of other examples.
WHOLE = 60


def test_stories_break_nothing_and_come_to_rest() -> None:
    taken: list[int] = []
    share = min(settings().max_examples / WHOLE, 1.0) ** 2

    @settings(max_examples=round(STORIES * share), suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 2**16), story=stories(longest=LONGEST))
    def told(seed: int, story: list[Step]) -> None:
        machine.tell(story, seed=seed)
        taken.append(len(story))

    told()
    assert sum(taken) >= LEAST_STEPS * share, f"only {sum(taken)} steps"
