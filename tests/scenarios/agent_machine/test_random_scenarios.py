"""Random scenarios of Pods, faults, crashes and reboots: no invariant is violated, and without faults all comes to rest.

A failing scenario is shrunk and printed with its seed; copy it into `test_regressions.py` to keep it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.scenarios.agent_machine import machine
from tests.scenarios.agent_machine.machine import Step
from tests.scenarios.agent_machine.strategies import scenarios
from tests.unit import example_counts

MAX_STEPS = 50
EXAMPLES = 130
MIN_TOTAL_STEPS = 2000
# A fast run has few: each costs as much as hundreds of other examples.
FAST_EXAMPLES = 3


def test_scenarios_violate_nothing_and_come_to_rest() -> None:
    taken: list[int] = []
    is_whole = example_counts.share() == 1

    @settings(
        max_examples=EXAMPLES if is_whole else FAST_EXAMPLES,
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**16), scenario=scenarios(longest=MAX_STEPS))
    def run_one(seed: int, scenario: list[Step]) -> None:
        machine.run(scenario, seed=seed)
        taken.append(len(scenario))

    run_one()
    # Few scenarios may happen to be short ones.
    assert sum(taken) >= MIN_TOTAL_STEPS * is_whole, f"only {sum(taken)} steps"
