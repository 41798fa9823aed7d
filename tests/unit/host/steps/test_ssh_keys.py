"""SSH keys: ours are added, foreign lines are kept byte for byte, and a private key given by mistake is not shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base.errors import InvalidSpec
from bramley.host.step import Step
from bramley.host.steps.ssh_keys import SshKeys, with_lines
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

FLEET = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFleet fleet"
STEP: Step = SshKeys("m1", (FLEET,))
FOREIGN = st.binary(max_size=60) | st.sampled_from(
    [b"", b"# x", FLEET.encode() + b"\n", b"\r\n", b"no newline", b"\xff\xfe\n"]
)


@pytest.mark.parametrize("case", cases.load("ssh_keys"), ids=str)
def test_plan_matches_case(case: Case) -> None:
    case.check(STEP)


@given(FOREIGN)
def test_foreign_bytes_are_kept_and_a_second_run_changes_nothing(content: bytes) -> None:
    once = with_lines(content, (FLEET, FLEET))

    assert once.startswith(content)
    assert once.count(FLEET.encode()) >= 1
    assert len(once) <= len(content) + len(FLEET) + 2
    assert with_lines(once, (FLEET, FLEET)) == once


def test_no_keys_change_nothing() -> None:
    bare = cases.load("ssh_keys")[1]
    step = SshKeys("m1", ())

    assert list(step.plan(bare.facts(step))) == []


@pytest.mark.parametrize(
    "line",
    [
        "",
        "fleet",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        f"{FLEET}\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOther",
        f"# {FLEET}",
        "ssh-dss AAAAB3NzaC1kc3MAAACBAOld old",
    ],
)
def test_invalid_public_key_is_refused_without_being_shown(line: str) -> None:
    with pytest.raises(
        InvalidSpec, match=r"public_keys\[1\] is not a valid line of authorized_keys"
    ) as caught:
        SshKeys("m1", (FLEET, line))

    assert not line or line not in str(caught.value)
