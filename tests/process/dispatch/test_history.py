"""The check of histories finds what is wrong: each history here has one fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.process.dispatch.history import HandedOut, History, JobState, Run, violations


def done(pod: str) -> JobState:
    return JobState("completed", "success", f"{pod}-0a1b2c3d")


def a_history() -> History:
    """Return a history of two jobs without a fault."""
    return History(
        handed_out=[HandedOut("pod-1", "jit-1"), HandedOut("pod-2", "jit-2")],
        runs=[Run("pod-1", "jit-1", 1), Run("pod-2", "jit-2", 2)],
        acknowledged={"guid-1"},
        at_github={1: done("pod-1"), 2: done("pod-2")},
        stored={1: done("pod-1"), 2: done("pod-2")},
        deliveries={"guid-1": "completed", "guid-2": "queued"},
    )


def lost(history: History) -> None:
    history.at_github[1] = history.stored[1] = JobState("queued", "", "")


def ran_on_no_guest(history: History) -> None:
    history.runs[0] = Run("pod-1", "jit-1", None)


def ran_twice(history: History) -> None:
    history.handed_out.append(HandedOut("pod-3", "jit-3"))
    history.runs.append(Run("pod-3", "jit-3", 2))


def ran_elsewhere(history: History) -> None:
    history.at_github[1] = history.stored[1] = done("pod-9")


def ran_unknown_job(history: History) -> None:
    history.handed_out.append(HandedOut("pod-3", "jit-3"))
    history.runs.append(Run("pod-3", "jit-3", 9))


def runner_for_two_pods(history: History) -> None:
    history.handed_out.append(HandedOut("pod-3", "jit-1"))


def two_runners_for_one_pod(history: History) -> None:
    history.handed_out.append(HandedOut("pod-1", "jit-3"))
    history.runs.append(Run("pod-1", "jit-3"))


def job_for_a_second_pod(history: History) -> None:
    history.handed_out.append(HandedOut("pod-3", "jit-3"))
    history.runs.append(Run("pod-3", "jit-3"))


def displaced_runner_without_failed_webhooks(history: History) -> None:
    job_for_a_second_pod(history)
    history.displaced.add("pod-3")


def failed_webhooks_but_no_displaced_runner(history: History) -> None:
    job_for_a_second_pod(history)
    history.failed_webhooks = 5


def refused_runner(history: History) -> None:
    history.handed_out.append(HandedOut("pod-3", "jit-3"))
    history.runs.append(Run("pod-3", "jit-3", refusal="401"))


def runner_that_never_started(history: History) -> None:
    history.handed_out.append(HandedOut("pod-3", "jit-3"))


def job_missing_in_the_database(history: History) -> None:
    del history.stored[1]


def job_still_running_in_the_database(history: History) -> None:
    history.stored[1] = JobState("running", "", "pod-1-0a1b2c3d")


def job_unknown_at_github(history: History) -> None:
    history.stored[9] = done("pod-1")


def acknowledged_webhook_not_stored(history: History) -> None:
    history.acknowledged.add("guid-9")


def webhook_not_processed(history: History) -> None:
    history.deliveries["guid-1"] = ""


def unfinished_claim(history: History) -> None:
    history.unfinished_claims.append(7)


FAULTS: list[Callable[[History], None]] = [
    lost,
    ran_on_no_guest,
    ran_twice,
    ran_elsewhere,
    ran_unknown_job,
    runner_for_two_pods,
    two_runners_for_one_pod,
    job_for_a_second_pod,
    displaced_runner_without_failed_webhooks,
    failed_webhooks_but_no_displaced_runner,
    refused_runner,
    runner_that_never_started,
    job_missing_in_the_database,
    job_still_running_in_the_database,
    job_unknown_at_github,
    acknowledged_webhook_not_stored,
    webhook_not_processed,
    unfinished_claim,
]


def test_a_history_without_fault_has_no_violation() -> None:
    assert violations(a_history()) == []


def test_a_configuration_that_is_handed_out_again_to_its_pod_is_no_violation() -> None:
    history = a_history()
    history.handed_out.append(HandedOut("pod-1", "jit-1"))

    assert violations(history) == []


def test_a_displaced_runner_after_a_failed_webhook_is_no_violation() -> None:
    history = a_history()
    job_for_a_second_pod(history)
    history.displaced.add("pod-3")
    history.failed_webhooks = 1

    assert violations(history) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_violation(fault: Callable[[History], None]) -> None:
    history = a_history()

    fault(history)

    assert violations(history)
