"""What follows a failed bootstrap, as a table, and over the time in which its status is written again and again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bramley.base import errors
from bramley.machines import recovery
from bramley.machines.mac_draft import Settings
from bramley.machines.recovery import LATE_RETRY, RETRY, Recovery
from tests.unit.machines.macs import NOW, Life, a_status, ended, minutes, seconds, seen, step_names

B, REBOOT, RELEASE = Recovery.BOOTSTRAP, Recovery.REBOOT, Recovery.RELEASE
DEFAULT = recovery.Settings()


@pytest.mark.parametrize(
    ("attempts", "is_issued", "rented", "owned"),
    [
        (0, False, B, B),
        (2, False, B, B),
        (3, False, REBOOT, B),
        (3, True, B, B),
        (7, False, REBOOT, B),
        (7, True, B, B),
        (8, False, RELEASE, B),
        (8, True, RELEASE, B),
        (9, True, RELEASE, B),
    ],
)
def test_actions_by_failures(
    attempts: int, is_issued: bool, rented: Recovery, owned: Recovery
) -> None:
    status = a_status(bootstrap_attempts=attempts, bootstrap_reboot_issued=is_issued)

    actions = [recovery.recovery(status, DEFAULT, is_rented=each) for each in (True, False)]

    assert actions == [rented, owned]


@pytest.mark.parametrize(
    ("settings", "attempts", "expected"),
    [
        (recovery.Settings(reboot_after=0), 7, B),
        (recovery.Settings(reboot_after=0), 8, RELEASE),
        (recovery.Settings(max_attempts=0), 99, REBOOT),
        (recovery.Settings(reboot_after=0, max_attempts=0), 99, B),
        (recovery.Settings(reboot_after=5, max_attempts=2), 2, RELEASE),
    ],
)
def test_zero_disables_a_tier(
    settings: recovery.Settings, attempts: int, expected: Recovery
) -> None:
    status = a_status(bootstrap_attempts=attempts)

    assert recovery.recovery(status, settings, is_rented=True) is expected


@pytest.mark.parametrize(
    ("attempts", "settings", "retry"),
    [
        (1, DEFAULT, RETRY),
        (7, DEFAULT, RETRY),
        (8, DEFAULT, LATE_RETRY),
        (99, recovery.Settings(max_attempts=0), RETRY),
    ],
)
def test_time_before_the_next_attempt(
    attempts: int, settings: recovery.Settings, retry: timedelta
) -> None:
    status = a_status(bootstrap_attempts=attempts, last_bootstrap_failure_time=NOW)

    assert recovery.wait_left(status, settings, NOW + seconds(1)) == retry - seconds(1)
    assert recovery.wait_left(status, settings, NOW + retry) == timedelta()
    assert recovery.wait_left(status, settings, NOW + minutes(99)) == timedelta()


def test_first_attempt_need_not_wait() -> None:
    assert recovery.wait_left(a_status(), DEFAULT, NOW) == timedelta()


DELAYS = st.lists(st.integers(0, 90), min_size=30, max_size=120)


def failing(delays: list[int], *, rented: bool = True, reboots: bool = True) -> list[str]:
    """Let each bootstrap fail at once, under reconciles with these delays; return what was done, and check the waits."""
    life = Life(seen(is_rented=rented))
    for delay in delays:
        before = life.status
        decision = life.reconcile(after=seconds(delay))
        if "start bootstrap" in step_names(decision.steps):
            late = 0 < DEFAULT.max_attempts <= before.bootstrap_attempts
            since = before.last_bootstrap_failure_time
            assert since is None or life.seen.now >= since + (LATE_RETRY if late else RETRY)
            failed = ended(error=errors.CommandFailed("exit 1"))
            decision = life.reconcile(operation=failed)
        if "reboot" in step_names(decision.steps):
            life.reconcile(status=replace(life.status, bootstrap_reboot_issued=reboots))
        if "swap: BootstrapExhausted" in life.steps:
            break
    return life.steps


@given(DELAYS)
def test_writes_of_the_status_use_up_no_attempts(delays: list[int]) -> None:
    steps = failing(delays)

    starts = steps.count("start bootstrap")
    assert starts <= 1 + sum(delays) // 60
    assert steps.count("reboot") == (starts >= 3)
    assert (steps[-1] == "swap: BootstrapExhausted") == (starts == 8)
    assert starts <= 8


@given(DELAYS)
def test_owned_mac_is_neither_rebooted_nor_released(delays: list[int]) -> None:
    steps = failing(delays * 3, rented=False)

    assert set(steps) == {"start bootstrap"}


@given(DELAYS)
def test_reboot_that_the_provider_refuses_does_not_stop_the_attempts(delays: list[int]) -> None:
    steps = failing([*delays, *[61] * 10], reboots=False)

    assert steps[-1] == "swap: BootstrapExhausted"
    assert steps.count("start bootstrap") == 8
    before_third = steps.index("reboot")
    assert steps[:before_third].count("start bootstrap") == 3


def test_owned_mac_is_tried_every_ten_minutes_late() -> None:
    life = Life(seen(is_rented=False))
    for _ in range(60):
        if life.reconcile(after=minutes(1)).steps:
            life.reconcile(operation=ended(error=errors.HostUnreachable("no route")))
    # Eight attempts in as many minutes, and five in the other 52.
    assert life.steps == ["start bootstrap"] * 13


def test_release_ignores_that_the_configuration_is_unknown() -> None:
    life = Life(seen(status=a_status(bootstrap_attempts=8)), Settings())

    life.reconcile()

    assert life.steps == ["swap: BootstrapExhausted"]
