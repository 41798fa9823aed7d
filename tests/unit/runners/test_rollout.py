from __future__ import annotations

from collections.abc import Sequence

import pytest

from bramley.api.runner_pool import Canary, RunnerPool
from bramley.runners.pods import RunnerPod
from tests.unit.runners.builders import (
    NEW,
    NEWER,
    OLD,
    a_booting_pod,
    a_pod,
    a_pool,
    an_ended_pod,
)
from tests.unit.runners.rollout_states import (
    FOUR,
    PAUSED,
    PROMOTE,
    UNDO,
    a_clock,
    advance,
    facts,
    rolling,
    stored,
    with_image,
)


@pytest.mark.parametrize(
    ("pool", "pods", "hosts", "expected"),
    [
        pytest.param(a_pool(), (), 0, (OLD, "", "", "Idle"), id="new pool"),
        pytest.param(
            a_pool(), (a_booting_pod(image=OLD),), 1, (OLD, "", "", "Idle"), id="first Pods boot"
        ),
        pytest.param(a_pool(), FOUR, 1, (OLD, OLD, "", "Idle"), id="first good image"),
        pytest.param(
            a_pool(image=NEW),
            (a_booting_pod(image=OLD),),
            1,
            (NEW, "", "", "Rolling"),
            id="image of a new pool that never worked is replaced without a trial",
        ),
        pytest.param(a_pool(image=NEW), FOUR, 0, (NEW, OLD, "", "Staging"), id="taken over"),
        pytest.param(
            a_pool(image=NEW),
            (*FOUR[:3], a_pod("new", NEW)),
            0,
            (NEW, OLD, "", "Rolling"),
            id="taken over in the middle of a roll",
        ),
        pytest.param(
            rolling(roll_phase="Idle"), FOUR, 0, (NEW, OLD, "", "Staging"), id="no host has it"
        ),
        pytest.param(rolling(), FOUR, 1, (NEW, OLD, "", "Canary"), id="a host has it"),
        pytest.param(
            rolling(), (*FOUR, a_booting_pod()), 0, (NEW, OLD, "", "Canary"), id="a canary boots"
        ),
        pytest.param(
            rolling(), (*FOUR[:3], a_pod("c", NEW)), 0, (NEW, OLD, "", "Rolling"), id="good canary"
        ),
        pytest.param(
            rolling(canary_passed_image=NEW),
            (a_pod("c", NEW), a_pod("busy", is_claimed=True)),
            0,
            (NEW, OLD, "", "Rolling"),
            id="the last old Pod has a job",
        ),
        pytest.param(
            rolling(canary_passed_image=NEW),
            (a_pod("c", NEW), an_ended_pod("old")),
            0,
            (NEW, NEW, "", "Idle"),
            id="completed",
        ),
        pytest.param(
            rolling(canary_passed_image=NEW),
            (a_booting_pod(),),
            0,
            (NEW, OLD, "", "Idle"),
            id="not completed before a Pod is ready",
        ),
        pytest.param(
            rolling(canary=Canary(count=0)),
            (*FOUR[:3], a_booting_pod()),
            0,
            (NEW, OLD, "", "Rolling"),
            id="no canaries",
        ),
        pytest.param(rolling(replicas=0), (), 0, (NEW, OLD, "", "Idle"), id="no replicas"),
        pytest.param(
            rolling(replicas=1), (), 0, (NEW, OLD, "", "Staging"), id="the only Pod has just ended"
        ),
        pytest.param(
            rolling(replicas=1, canaries=[a_clock("booting")]),
            (a_booting_pod(),),
            0,
            (NEW, OLD, "", "Canary"),
            id="the only Pod is the canary",
        ),
        pytest.param(rolling(annotations=PAUSED), FOUR, 1, (NEW, OLD, "", "Paused"), id="paused"),
        pytest.param(
            a_pool(annotations=PAUSED, target_image=OLD, last_good_image=OLD),
            FOUR,
            1,
            (OLD, OLD, "", "Idle"),
            id="paused without a roll",
        ),
        pytest.param(
            rolling(annotations={PROMOTE: NEW}), FOUR, 0, (NEW, OLD, "", "Rolling"), id="promoted"
        ),
        pytest.param(
            rolling(annotations={PROMOTE: NEWER}), FOUR, 0, (NEW, OLD, "", "Staging"), id="other"
        ),
        pytest.param(
            rolling(annotations={UNDO: NEW}), FOUR, 1, (OLD, OLD, NEW, "Rejected"), id="undone"
        ),
        pytest.param(
            a_pool(
                image=NEW,
                annotations={UNDO: NEW},
                target_image=NEW,
                last_good_image=NEW,
                previous_good_image=OLD,
            ),
            (a_pod("new", NEW),),
            1,
            (OLD, OLD, NEW, "Rejected"),
            id="undone after the roll",
        ),
        pytest.param(
            a_pool(annotations={UNDO: OLD}, target_image=OLD, last_good_image=OLD),
            FOUR,
            1,
            (OLD, OLD, "", "Idle"),
            id="nothing to undo",
        ),
        pytest.param(
            a_pool(image=NEW, target_image=OLD, last_good_image=OLD, rejected_image=NEW),
            FOUR,
            1,
            (OLD, OLD, NEW, "Rejected"),
            id="a rejected image is not tried again",
        ),
        pytest.param(
            a_pool(image=NEWER, target_image=OLD, last_good_image=OLD, rejected_image=NEW),
            FOUR,
            1,
            (NEWER, OLD, "", "Canary"),
            id="another image after a rejected one",
        ),
        pytest.param(
            a_pool(target_image=OLD, last_good_image=OLD, rejected_image=NEW),
            FOUR,
            1,
            (OLD, OLD, "", "Idle"),
            id="back to the last good image after a rejected one",
        ),
        pytest.param(
            a_pool(
                image=NEW,
                annotations={PROMOTE: NEW},
                target_image=OLD,
                last_good_image=OLD,
                rejected_image=NEW,
            ),
            FOUR,
            0,
            (NEW, OLD, "", "Rolling"),
            id="a rejected image is promoted",
        ),
        pytest.param(
            with_image(rolling(canary_passed_image=NEW), OLD),
            (*FOUR[:3], a_pod("new", NEW)),
            0,
            (OLD, OLD, "", "Rolling"),
            id="reverted during the roll",
        ),
        pytest.param(
            with_image(rolling(canary_passed_image=NEW), NEWER),
            (*FOUR[:3], a_pod("new", NEW)),
            0,
            (NEWER, OLD, "", "Staging"),
            id="changed again during the roll",
        ),
    ],
)
def test_next_state(
    pool: RunnerPool,
    pods: Sequence[RunnerPod],
    hosts: int,
    expected: tuple[str, str, str, str],
) -> None:
    assert facts(advance(pool, pods, hosts=hosts)) == expected


def test_roll_goes_from_staging_over_canary_and_waves_to_its_end() -> None:
    pool, phases = a_pool(image=NEW, target_image=OLD, last_good_image=OLD), []
    moments: list[tuple[Sequence[RunnerPod], int]] = [
        (FOUR, 0),
        (FOUR, 1),
        ((*FOUR[:3], a_booting_pod("c")), 1),
        ((*FOUR[:3], a_pod("c", NEW)), 1),
        ((FOUR[0], *(a_pod(f"n{n}", NEW) for n in range(3))), 1),
        ([a_pod(f"n{n}", NEW) for n in range(4)], 1),
        ([a_pod(f"n{n}", NEW) for n in range(4)], 1),
    ]

    for pods, hosts in moments:
        state = advance(pool, pods, hosts=hosts)
        phases.append(state.phase)
        pool = stored(pool, state)

    assert phases == ["Staging", "Canary", "Canary", "Rolling", "Rolling", "Idle", "Idle"]
    assert (state.last_good, state.previous_good, state.started_at) == (NEW, OLD, None)
    assert list(state.boots) == [30] * 4
