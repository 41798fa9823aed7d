from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bramley.api.runner_pool import Canary, Gate, RunnerPool
from bramley.api.runner_pool_status import PendingPod, Slot
from bramley.runners.judgement import JobCounts, RollSignals, Verdict
from bramley.runners.pods import RunnerPod
from tests.unit.runners.builders import (
    NEW,
    NEWER,
    NOW,
    OLD,
    a_booting_pod,
    a_failed_pod,
    a_pod,
    a_pool,
    in_slots,
    seconds,
)
from tests.unit.runners.rollout_states import (
    FOUR,
    PROMOTE,
    UNDO,
    a_clock,
    advance,
    facts,
    rolling,
    stored,
    with_image,
)


def bad_canaries() -> dict[Verdict, tuple[RunnerPool, Sequence[RunnerPod], RollSignals | None]]:
    late = [a_clock("c", NOW - seconds(601))]
    failed, slots = in_slots([a_failed_pod("c")])
    slow = [a_pod(f"s{n}", NEW, started_at=NOW - seconds(900)) for n in range(2)]
    fails = RollSignals(jobs={NEW: JobCounts(20, 20), OLD: JobCounts(20, 0)})
    gate = Gate(job_failure_points=10)
    return {
        Verdict.EXITED: (rolling(target_failures=1, slots=slots), failed, None),
        Verdict.NOT_READY: (rolling(canaries=late), [a_booting_pod("c")], None),
        Verdict.NOT_POLLING: (rolling(canaries=late), [a_pod("c", NEW)], RollSignals()),
        Verdict.BOOT_SLOW: (rolling(boot_seconds=[30] * 20), slow, None),
        Verdict.PODS_FAIL: (
            rolling(target_failures=2, slots=slots, canary_passed_image=NEW),
            failed,
            None,
        ),
        Verdict.JOBS_FAIL: (rolling(gate=gate, canary_passed_image=NEW), [a_pod("c", NEW)], fails),
    }


@pytest.mark.parametrize("verdict", bad_canaries())
def test_rejected_image_goes_back_to_the_last_good_one_and_stays_there(verdict: Verdict) -> None:
    pool, canaries, signals = bad_canaries()[verdict]

    state = advance(pool, (*canaries, *FOUR), signals=signals)
    again = advance(stored(pool, state), FOUR, signals=signals)

    assert state.judgement is not None
    assert state.judgement.verdict is verdict
    assert facts(state) == facts(again) == (OLD, OLD, NEW, "Rejected")
    assert again.judgement is None
    assert again.started_at is None


def test_every_rejecting_verdict_is_tested() -> None:
    rejecting = {each for each in Verdict if each.is_rejection}

    assert {*bad_canaries(), Verdict.UNDONE} == rejecting


def test_one_canary_that_ends_at_once_does_not_reject_the_image() -> None:
    failed, slots = in_slots([a_failed_pod("c")])

    state = advance(rolling(slots=slots), (*failed, *FOUR))

    assert (state.failures, state.rejected, state.phase) == (1, "", "Canary")


def test_failed_canary_is_counted_once() -> None:
    failed, slots = in_slots([a_failed_pod("c")])
    freed = [msgspec.structs.replace(slots[0], active=False)]

    state = advance(rolling(slots=freed, target_failures=1), (*failed, *FOUR))

    assert state.failures == 1


@pytest.mark.parametrize("reason", ["HostRebooted", "Stopped", "Evicted"])
def test_end_that_the_host_caused_is_no_failure_of_the_image(reason: str) -> None:
    failed, slots = in_slots([a_failed_pod("c", reason=reason)])

    assert advance(rolling(slots=slots), (*failed, *FOUR)).failures == 0


def test_undo_after_a_roll_drops_the_boots_of_the_undone_image() -> None:
    pool = a_pool(
        image=NEW,
        annotations={UNDO: NEW},
        target_image=NEW,
        last_good_image=NEW,
        previous_good_image=OLD,
        boot_seconds=[90] * 20,
    )

    state = advance(pool, (a_pod("new", NEW),))

    assert state.boots == ()
    assert state.judgement is not None
    assert state.judgement.verdict is Verdict.UNDONE


def test_undone_image_is_not_undone_again_after_the_owner_changes_the_image() -> None:
    pool = rolling(annotations={UNDO: NEW})
    pool = stored(pool, advance(pool, FOUR))

    state = advance(with_image(pool, NEWER, **{UNDO: NEW}), FOUR)

    assert facts(state) == (NEWER, OLD, "", "Canary")


def test_undone_image_is_tried_again_when_its_owner_sets_it_again() -> None:
    pool = rolling(annotations={UNDO: NEW})
    for image in (NEW, OLD):
        pool = with_image(pool, image, **{UNDO: NEW})
        pool = stored(pool, advance(pool, FOUR))

    again = advance(with_image(pool, NEW, **{UNDO: NEW}), FOUR)

    assert (pool.status.rejected_image, again.undone) == ("", NEW)
    assert facts(again) == (NEW, OLD, "", "Canary")


def test_image_can_be_undone_again_once_the_annotation_was_removed() -> None:
    pool = rolling(undone_image=NEW)
    pool = stored(pool, advance(pool, FOUR))

    state = advance(with_image(pool, NEW, **{UNDO: NEW}), FOUR)

    assert pool.status.undone_image == ""
    assert facts(state) == (OLD, OLD, NEW, "Rejected")


def test_promoted_image_is_not_judged() -> None:
    failed, slots = in_slots([a_failed_pod("c")])
    pool = rolling(annotations={PROMOTE: NEW}, slots=slots, target_failures=9)

    assert facts(advance(pool, (*failed, *FOUR))) == (NEW, OLD, "", "Rolling")


def test_time_of_the_pull_does_not_count() -> None:
    pulling = a_booting_pod("c", waiting="PullingImage", created_at=NOW - seconds(5000))

    first = advance(rolling(), (*FOUR, pulling))
    booting = replace(pulling, waiting="BootingVM")
    second = advance(stored(rolling(), first), (*FOUR, booting), now=NOW + seconds(5000))

    assert (first.canaries, first.rejected) == ((), "")
    assert (second.canaries, second.rejected) == ((a_clock("c", NOW + seconds(5000)),), "")


def test_pull_that_fails_again_and_again_does_not_stop_the_clock() -> None:
    pod = a_booting_pod("c", waiting="PullingImage", created_at=NOW - seconds(900))
    pool = rolling(canaries=[a_clock("c", NOW - seconds(601))])

    state = advance(pool, (*FOUR, pod))

    assert state.judgement is not None
    assert state.judgement.verdict is Verdict.NOT_READY


def test_good_image_is_not_rejected_because_another_host_still_pulls_it() -> None:
    spec: dict[str, Any] = {"canary": Canary(count=2), "percent": 50}
    pool = rolling(canaries=[a_clock("c", NOW - seconds(1201))], **spec)
    ready, pulling = a_pod("c", NEW), a_booting_pod("d", waiting="PullingImage")

    alone = advance(pool, (*FOUR[:3], ready))
    pulls = advance(pool, (*FOUR[:2], ready, pulling))
    boots = advance(pool, (*FOUR[:2], ready, replace(pulling, waiting="BootingVM")))

    assert [facts(each) for each in (alone, pulls, boots)] == [(NEW, OLD, "", "Canary")] * 3
    assert alone.waits_for.startswith("1 of 2 canaries are ready, 1 more to be placed")
    assert pulls.canaries == (a_clock("c", NOW - seconds(1201)),)
    assert boots.canaries == (a_clock("c", NOW - seconds(1201)), a_clock("d"))


def test_one_slow_boot_does_not_reject_the_image_while_another_host_pulls_it() -> None:
    pool = rolling(boot_seconds=[30] * 20, canaries=[a_clock("c", NOW - seconds(1201))])
    slow = a_pod("c", NEW, started_at=NOW - seconds(900))
    pulling = a_booting_pod("d", waiting="PullingImage")

    assert advance(pool, (*FOUR[:3], slow)).rejected == ""
    assert advance(pool, (*FOUR[:2], slow, pulling)).rejected == ""


def test_slow_canary_needs_one_more() -> None:
    slow = a_pod("c", NEW, started_at=NOW - seconds(900))

    state = advance(rolling(boot_seconds=[30] * 20), (*FOUR[:3], slow))

    assert (state.more_canaries, state.phase) == (1, "Canary")


def test_missing_signals_are_ignored() -> None:
    ready = a_pod("c", NEW)

    assert advance(rolling(), (*FOUR[:3], ready), signals=None).passed == NEW
    assert advance(rolling(), (*FOUR[:3], ready), signals=RollSignals()).passed == ""


def test_number_of_canaries_is_limited_by_the_cap() -> None:
    pool = rolling(canary=Canary(count=3))

    assert advance(pool, (*FOUR[:3], a_pod("c", NEW))).passed == NEW


def test_boots_of_the_last_good_image_are_recorded_once_and_as_many_as_the_sample() -> None:
    pods, slots = in_slots(
        a_pod(f"p{n}", started_at=NOW - seconds(700), ready_changed_at=NOW - seconds(690 - n))
        for n in range(5)
    )
    given: dict[str, Any] = {"gate": Gate(minimum_sample=3), "last_good_image": OLD}
    recorded = [msgspec.structs.replace(slot, boot_seconds=10) for slot in slots]

    first = advance(a_pool(target_image=OLD, slots=slots, **given), pods)
    again = advance(
        a_pool(target_image=OLD, slots=recorded, boot_seconds=list(first.boots), **given), pods
    )

    assert first.boots == again.boots == (12, 13, 14)


def test_boot_that_is_seen_later_than_another_of_the_same_second_is_recorded() -> None:
    pods, slots = in_slots([a_pod("a"), a_pod("b")])
    seen = [msgspec.structs.replace(slots[0], boot_seconds=30), slots[1]]
    pool = a_pool(target_image=OLD, last_good_image=OLD, slots=seen, boot_seconds=[30])

    assert advance(pool, pods).boots == (30, 30)


def test_pod_that_becomes_ready_again_has_not_booted_again() -> None:
    flapping, slots = in_slots([a_pod("a", ready_changed_at=NOW - seconds(5))])
    booted = [msgspec.structs.replace(slots[0], boot_seconds=30)]
    pool = a_pool(target_image=OLD, last_good_image=OLD, slots=booted, boot_seconds=[30])

    assert advance(pool, flapping).boots == (30,)


def test_boots_of_an_image_that_becomes_the_last_good_one_are_those_of_its_first_ready() -> None:
    flapping, slots = in_slots([a_pod("a", NEW, ready_changed_at=NOW - seconds(5))])
    booted = [msgspec.structs.replace(slots[0], boot_seconds=30)]
    pool = rolling(canary_passed_image=NEW, slots=booted, boot_seconds=[90] * 20)

    state = advance(pool, flapping)

    assert (state.last_good, state.boots) == (NEW, (30,))


def test_boot_longer_than_a_canary_may_take_is_not_recorded() -> None:
    """The Pod was Ready, and then not, before the controller saw it: at the takeover of a pool, or after a long absence."""
    pods = [a_pod("a"), a_pod("b", started_at=NOW - seconds(90_000))]

    assert advance(a_pool(), pods).boots == (30,)


def test_boots_of_a_new_image_are_not_recorded_as_those_of_the_last_good_one() -> None:
    slower = a_pod("c", NEW, started_at=NOW - seconds(650))
    pods, slots = in_slots([a_pod("old"), slower])

    assert advance(rolling(slots=slots), pods).boots == (30,)


def test_duration_is_reported_once() -> None:
    pool = rolling(canary_passed_image=NEW)

    first = advance(pool, (a_pod("n", NEW),))
    again = advance(stored(pool, first), (a_pod("n", NEW),))

    assert (first.duration, again.duration) == (seconds(300), None)


def test_slot_that_announces_an_old_image_keeps_the_roll_going() -> None:
    pending = PendingPod(image=OLD, created_for="Turnover")
    slots = [Slot(counter=2, active=True, pending=pending)]

    state = advance(rolling(canary_passed_image=NEW, slots=slots), (a_pod("n", NEW),))

    assert facts(state) == (NEW, OLD, "", "Rolling")
