"""A whole bootstrap with a canary in every secret field, gone wrong wherever one is carried: nobody but its addressee sees one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import pytest

from bramley.app.hosts import SshOptions
from bramley.base import virtual_time
from bramley.base.errors import UnsupportedHost
from bramley.cli import failures
from bramley.cli import host_screen
from bramley.host import preparation
from bramley.host import converge
from bramley.host.spec import MacSpec, Tailnet
from bramley.host.ssh import Credentials
from tests.scenarios.host_secrets import failing
from tests.scenarios.host_secrets.canaries import Canaries
from tests.scenarios.host_secrets.failing import Buggy, Failing, Wrong
from tests.scenarios.host_secrets.macs import (
    Heard,
    bare,
    leaks_of,
    line_to,
    listening,
    open_to_others,
    spec,
    steps,
)

# Where secrets are given to a bootstrap, and the canary of each; a new place needs one.
PLACES = {
    (MacSpec, "password"): "password",
    (MacSpec, "kubeconfig"): "token",
    (Tailnet, "auth_key"): "auth_key",
    (Credentials, "private_keys"): "private_key",
    (Credentials, "password"): "password",
    (SshOptions, "password"): "password",
}


# Every command of a whole bootstrap that brings a secret to the Mac.
CARRIERS = [
    "sudo: check the password of m1",
    "sudo: let m1 use sudo without a password",
    "auto-login: check the password of m1",
    "auto-login: keep the password of automatic login",
    "tailscale: give tailscale its key",
    "kubeconfig: write the agent's kubeconfig",
]


def no_leak(heard: Heard, canaries: Canaries, *more: str) -> None:
    assert canaries.seen_in(*heard.everything(), *more) == []


def secret_fields(kind: type) -> Sequence[tuple[type, str]]:
    hints = get_type_hints(kind)
    return [
        (kind, each.name) for each in dataclasses.fields(kind) if "Secret" in str(hints[each.name])
    ]


def test_every_secret_field_has_a_canary(tmp_path: Path) -> None:
    kinds = {kind for kind, _ in PLACES}
    assert {place for kind in kinds for place in secret_fields(kind)} == set(PLACES)

    canaries = Canaries()
    whole = spec(tmp_path, canaries)
    assert whole.password == canaries.password
    assert whole.tailnet
    assert whole.tailnet.auth_key == canaries.auth_key
    assert whole.kubeconfig
    assert canaries.seen_in(whole.kubeconfig.reveal()) == ["token"]


@pytest.mark.parametrize("goes_wrong", [failing.repeats_its_input, failing.is_cut, failing.hangs])
async def test_a_bootstrap_in_which_every_carrier_of_a_secret_goes_wrong(
    goes_wrong: Wrong, tmp_path: Path
) -> None:
    canaries = Canaries()
    mac, clock = bare(tmp_path / "mac", canaries), virtual_time.clock()
    line = Failing(mac, clock=clock, canaries=canaries, goes_wrong=goes_wrong)

    with listening() as heard:
        await line.become(steps(tmp_path / "artifacts", canaries), heard)

    assert line.wrong == CARRIERS
    no_leak(heard, canaries)
    assert leaks_of(tmp_path, canaries) == []
    assert len(list(open_to_others(line.mac.root))) > 10, "nothing was looked at"


@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "as JSON"])
async def test_plans_and_progress_on_the_screen(
    *, as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    canaries = Canaries()
    wanted, mac = steps(tmp_path / "artifacts", canaries), bare(tmp_path / "mac", canaries)
    screen = host_screen.Screen("m1@mac", as_json=as_json)

    with listening() as heard:
        host_screen.tell_plan(await converge.plan(line_to(mac), wanted), as_json=as_json)
        screen.tell(await converge.apply(line_to(mac), wanted, on_progress=screen.hear))
        # Now the Mac itself has secrets, which others are to replace.
        others = steps(tmp_path / "artifacts", Canaries())
        host_screen.tell_plan(await converge.plan(line_to(mac), others), as_json=as_json)

    shown = capsys.readouterr().out
    assert "keep the password of automatic login" in shown
    no_leak(heard, canaries, shown)


@pytest.mark.parametrize("by_hand", [False, True], ids=["bootstrap", "prepare"])
async def test_a_wrong_password(*, by_hand: bool, tmp_path: Path) -> None:
    canaries = Canaries()
    line, wrong = line_to(bare(tmp_path / "mac", canaries)), canaries.wrong_password
    wanted = steps(tmp_path / "artifacts", canaries, password=wrong)

    with listening() as heard:
        run = preparation.prepare(line, "m1", wrong) if by_hand else converge.apply(line, wanted)
        with pytest.raises(UnsupportedHost, match="password is wrong") as caught:
            await run

    heard.error(caught.value)
    no_leak(heard, canaries)
    assert leaks_of(tmp_path, canaries) == []


async def test_a_crash_that_tells_everything_it_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug, told with its traceback as at the finest log level; each carrier of a secret is in it once."""
    canaries = Canaries()
    line = Buggy(bare(tmp_path / "mac", canaries), clock=virtual_time.clock())
    wanted = steps(tmp_path / "artifacts", canaries)

    with listening() as heard:
        while not await line.becomes(wanted, heard):
            code = failures.report("bramley", line.bug)
            assert code == failures.BUG

    told = "".join(capsys.readouterr())
    assert {"check the password of m1", "write the agent's kubeconfig"} <= line.struck
    assert "Traceback" in told
    no_leak(heard, canaries, told)
