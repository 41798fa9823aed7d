"""Pools in the middle of a roll, and the step from one state of it to the next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from bramley.api import names
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import CanaryClock
from bramley.runners import rollout
from bramley.runners.judgement import RollSignals
from bramley.runners.pods import RunnerPod
from bramley.runners.rollout import Observed, Rollout
from tests.unit.runners.builders import (
    NEW,
    NOW,
    OLD,
    a_pod,
    a_pool,
    seconds,
)

FOUR = tuple(a_pod(f"old-{n}") for n in range(4))
PROMOTE, UNDO = names.annotations.ROLLOUT_PROMOTE, names.annotations.ROLLOUT_UNDO
PAUSED = {names.annotations.ROLLOUT_PAUSED: "true"}


def advance(
    pool: RunnerPool,
    pods: Sequence[RunnerPod],
    *,
    hosts: int = 1,
    signals: RollSignals | None = None,
    now: datetime = NOW,
) -> Rollout:
    return rollout.advance(Observed(pool, pods, lambda _image: hosts, signals, now))


def stored(pool: RunnerPool, state: Rollout) -> RunnerPool:
    """Return the pool whose status has this state of its roll."""
    status = msgspec.structs.replace(
        pool.status,
        target_image=state.target,
        last_good_image=state.last_good,
        previous_good_image=state.previous_good,
        rejected_image=state.rejected,
        promoted_image=state.promoted,
        undone_image=state.undone,
        canary_passed_image=state.passed,
        roll_phase=state.phase,
        roll_started_at=state.started_at,
        canaries=list(state.canaries),
        target_failures=state.failures,
        boot_seconds=list(state.boots),
    )
    return msgspec.structs.replace(pool, status=status)


def a_clock(pod: str, started_at: datetime = NOW) -> CanaryClock:
    return CanaryClock(pod=pod, started_at=started_at)


def with_image(pool: RunnerPool, image: str, **notes: str) -> RunnerPool:
    spec = msgspec.structs.replace(pool.spec, image=image)
    metadata = msgspec.structs.replace(pool.metadata, annotations=notes)
    return msgspec.structs.replace(pool, spec=spec, metadata=metadata)


def rolling(image: str = NEW, **given: Any) -> RunnerPool:
    """Return a pool that rolls from the old to a new image; other keywords are those of the builder."""
    defaults = {"target_image": image, "last_good_image": OLD, "roll_phase": "Canary"}
    return a_pool(image=image, **{"roll_started_at": NOW - seconds(300), **defaults, **given})


def facts(state: Rollout) -> tuple[str, str, str, str]:
    return state.target, state.last_good, state.rejected, state.phase
