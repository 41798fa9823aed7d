"""The explanation of a pool in each phase of its roll."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from bramley.api import names
from bramley.api.core import Node
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import RollPhase
from bramley.base.explanation import Explanation
from bramley.runners.explanation.pools import PoolFacts, explain_pool, known_pools
from bramley.runners.explanation.rolls import RollProgress, progress
from tests.unit.runners.test_explanation_pods import (
    MARKED,
    NEW,
    NOW,
    OLD,
    RUNNING,
    a_node,
    a_node_that_pulls,
    a_pod,
    ago,
)

CANARY = {"count": 1, "timeoutSeconds": 600}


def a_pool(
    phase: str = "Idle", *, target: str = NEW, name: str = "macos", **changes: Any
) -> RunnerPool:
    status = {
        "rollPhase": phase,
        "targetImage": target,
        "lastGoodImage": OLD,
        "rollStartedAt": ago(90),
        **changes.pop("status", {}),
    }
    spec = {
        "image": NEW,
        "fleetSelector": "demo",
        "dispatchLabel": "a",
        "runnerLabels": [],
        "replicas": 3,
        "podCPUMilli": 4000,
        "podMemoryMB": 4096,
        **changes.pop("spec", {}),
    }
    metadata = {"name": name, "namespace": "default", **changes}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, RunnerPool)


def runner(name: str, **changes: Any) -> Pod:
    given = {"phase": "Running", "state": RUNNING, "ready": True, **changes}
    own = {labels.RUNNER_POOL: "macos", **given.pop("labels", {})}
    return a_pod(name=name, labels=own, **given)


def explained(pool: RunnerPool, *pods: Pod, nodes: tuple[Node, ...] = ()) -> Explanation:
    found = nodes or (a_node("mac-1", golden=NEW), a_node("mac-2"), a_node("mac-3"))
    return explain_pool(PoolFacts(pool, [pool], pods, found), now=NOW)


def condition(type: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": ago(15),
    }


def test_idle_pool_names_the_runners_that_start_and_those_that_are_missing() -> None:
    found = explained(a_pool(), runner("a"), runner("b", ready=False))

    assert found.summary == f"1 of 3 runners are ready, with image {NEW}"
    assert found.waits_for == ("Pod b on mac-1 boots (35 s)", "a place for 1 more runner")


def test_staging_names_the_hosts_that_pull_and_how_far_they_are() -> None:
    found = explained(
        a_pool("Staging"), runner("a", image=OLD), nodes=(a_node_that_pulls("mac-2"),)
    )

    assert found.summary.endswith("0 of 1 hosts have it")
    assert found.waits_for == ("mac-2 pulls the image, 42 %",)
    assert found.since is not None


def test_canary_that_boots_is_named_with_its_host_and_limit() -> None:
    clock = {"pod": "b", "startedAt": ago(35)}
    pool = a_pool("Canary", status={"canaries": [clock]}, spec={"rollout": {"canary": CANARY}})

    found = explained(pool, runner("a", image=OLD), runner("b", ready=False, node="mac-2"))

    assert found.waits_for == ("Pod b on mac-2 boots (35 s)",)
    assert "longer than 10 min after its pull rejects the image" in found.next
    assert found.since == pool.status.canaries[0].started_at


def test_rolling_pool_names_what_is_in_flight_and_what_holds_the_rest() -> None:
    busy = {labels.RUNNER_POOL_OWNER: "7"}
    pods = (
        runner("a"),
        runner("b", image=OLD, labels=busy),
        runner("c", image=OLD, node="mac-2", labels=MARKED),
    )

    found = explained(a_pool("Rolling"), *pods)

    assert found.summary == f"1 of 3 runners have image {NEW}; 1 of at most 1 are being replaced"
    assert found.waits_for == (
        f"Pod c on mac-2 is drained for image {NEW}",
        "1 runner with a job and an old image",
        "mac-2 does not have the image",
    )


def test_idle_runner_on_a_node_that_is_gone_is_explained() -> None:
    found = explained(a_pool("Rolling"), runner("a"), runner("b", image=OLD, node="mac-9"))

    assert found.waits_for == ("mac-9 is not a host of the fleet any more",)


def test_pool_that_waits_for_the_cap_of_its_fleet_says_so() -> None:
    other = a_pool("Rolling", name="other", spec={"replicas": 1})
    drained = a_pod(name="z", ready=True, image=OLD, labels={labels.RUNNER_POOL: "other", **MARKED})
    pool = a_pool("Rolling")
    facts = PoolFacts(
        pool, [pool, other], [runner("a", image=OLD), drained], [a_node("mac-1", golden=NEW)]
    )

    found = explain_pool(facts, now=NOW)

    assert "other pools of the fleet, which roll and share its cap" in found.waits_for


def test_rejected_pool_gives_the_reason_and_the_way_out() -> None:
    rejected = condition("RolledOut", "False", "CanaryNotReady", "no canary became ready")
    pool = a_pool("Rejected", target=OLD, status={"conditions": [rejected]})

    found = explained(pool, runner("a"), runner("b", image=OLD))

    assert found.summary == "no canary became ready"
    assert found.waits_for == ("Pod a on mac-1 is ready, with an old image (30 s)",)
    assert "bramley rollout promote pool/macos" in found.next


def test_paused_pool_names_the_command_that_resumes_it() -> None:
    found = explained(a_pool("Paused"), runner("a", image=OLD))

    assert found.waits_for == ("bramley rollout resume pool/macos",)


def test_pool_that_the_controller_has_not_seen_points_at_the_controller() -> None:
    found = explained(a_pool("Idle", generation=2, status={"observedGeneration": 1}))

    assert "bramley runners" in found.waits_for[0]


def test_deleted_pool_waits_for_its_jobs() -> None:
    found = explained(
        a_pool(deletionTimestamp=ago(5)), runner("a", labels={labels.RUNNER_POOL_OWNER: "7"})
    )

    assert (found.state, found.waits_for) == ("Deleting", ("Pod a on mac-1 has a job of 7 (35 s)",))


@pytest.mark.parametrize("phase", [each for each in get_args(RollPhase) if each])
def test_every_phase_has_a_summary_and_a_next_step(phase: str) -> None:
    found = explained(a_pool(phase), runner("a"), runner("b", image=OLD))

    assert found.summary
    assert found.next


def test_conditions_that_need_attention_are_problems() -> None:
    conditions = [
        condition("Available", "True"),
        condition("RolledOut", "False", "Rolling"),
        condition("CapacityShort", "True", "SlotsTaken", "too few slots"),
        condition("StagingBlocked", "False"),
        condition("PodsFailing", "True", "PodsEnd", "they end"),
    ]

    found = explained(a_pool(status={"conditions": conditions}))

    assert [each.type for each in found.problems] == ["CapacityShort", "PodsFailing"]


def test_roll_without_progress_is_a_problem() -> None:
    stalled = condition("RolledOut", "False", "ProgressDeadlineExceeded", "no progress")

    found = explained(a_pool("Rolling", status={"conditions": [stalled]}))

    assert [(each.type, each.message) for each in found.problems] == [("RolledOut", "no progress")]


def test_autoscaler_and_backoff_are_noted() -> None:
    status = {
        "autoscaling": {"replicas": 4, "reason": "QueuedJobs", "message": "2 jobs wait"},
        "slots": [{"counter": 1, "failures": 2, "retryAt": "2026-01-01T12:00:40Z"}],
    }

    notes = " ".join(explained(a_pool(status=status)).notes)

    assert "decided on 4 (QueuedJobs): 2 jobs wait" in notes
    assert "the first at 12:00:40 UTC" in notes


def test_hosts_show_slots_and_images() -> None:
    found = explained(a_pool(), runner("a"))

    assert [(each.name, each.free, each.slots, each.image) for each in found.hosts] == [
        ("mac-1", 1, 2, "has the image"),
        ("mac-2", 2, 2, "does not have the image"),
        ("mac-3", 2, 2, "does not have the image"),
    ]


def test_progress_counts_updated_runners_and_ends_only_when_the_change_was_seen() -> None:
    status = {"observedReplicas": 3, "staleReplicas": 2, "observedGeneration": 1}
    rolling = progress(a_pool("Rolling", generation=1, status=status), hosts=3)
    unseen = progress(a_pool("Idle", generation=2, status=status), hosts=3)

    assert (rolling.updated, rolling.cap, rolling.is_done) == (1, 1, False)
    assert not unseen.is_done
    assert progress(a_pool("Rejected"), hosts=3).is_rejected


@pytest.mark.parametrize(
    ("annotation", "stored"),
    [
        (names.annotations.ROLLOUT_PROMOTE, "promotedImage"),
        (names.annotations.ROLLOUT_UNDO, "undoneImage"),
    ],
)
@pytest.mark.parametrize("phase", ["Idle", "Rejected"])
def test_progress_ends_only_when_the_command_was_carried_out(
    annotation: str, stored: str, phase: str
) -> None:
    """An annotation does not change the generation of the pool."""

    def shown(noted: str, carried_out: str) -> RollProgress:
        pool = a_pool(phase, annotations={annotation: noted}, status={stored: carried_out})
        return progress(pool, hosts=3)

    assert not shown(NEW, "").is_observed
    assert not shown(NEW, OLD).is_done
    assert not shown(NEW, OLD).is_rejected
    assert shown(NEW, NEW).is_observed
    # An annotation for another image has no effect.
    assert shown(OLD, "").is_observed


def test_known_pools_are_listed_with_their_namespace() -> None:
    assert known_pools([a_pool(), a_pool(name="b")]) == "default/b, default/macos"
    assert known_pools([]) == "there are none"
