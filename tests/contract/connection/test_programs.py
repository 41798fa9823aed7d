"""Programs through every connection: their codes, sudo, prompts, deadlines, and what is told when they fail."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host.commands import Find, Folder, Look, Reboot, Run, Wait
from bramley.host.facts import Said
from tests.contract.connection.targets import (
    OPENERS,
    PASSWORD,
    SETTINGS,
    every_target,
    ready,
    simulated_targets,
)

WRONG = Secret("canary-wrong")
CHECK = ("dscl", ".", "-authonly", SETTINGS.user)


@every_target
async def test_a_code_is_accepted_or_told(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        mac = stage.mac
        for as_root in (False, True):
            await mac.do(Run(argv=("true",), purpose="try", as_root=as_root))
            await mac.do(Run(argv=("false",), purpose="try", as_root=as_root, accepts=(0, 1)))
            with pytest.raises(errors.CommandFailed, match=": try: failed with code 1: ") as caught:
                await mac.do(Run(argv=("false",), purpose="try", as_root=as_root))
            assert str(caught.value).startswith(f"{mac.host}: ")
        missing = Look(("no-such-program",))
        seen = await mac.look([Look(("false",)), missing, Look(("true",), as_root=True)])
        assert seen.said(Look(("false",))) == Said(1)
        assert seen.said(missing).code == 127
        assert seen.said(Look(("true",), as_root=True)) == Said(0)


@every_target
async def test_sudo_takes_the_password_once_and_where_it_is_wanted(
    target: str, tmp_path: Path
) -> None:
    async with OPENERS[target](tmp_path) as stage:
        mac = stage.mac
        as_root = Run(argv=("true",), purpose="try", as_root=True, accepts=(0, 1))
        with pytest.raises(errors.CommandFailed, match="code 1: sudo: a password is required"):
            await mac.do(as_root)
        look = Look(("true",), as_root=True)
        assert (await mac.look([look])).said(look) == Said(1, b"sudo: a password is required\n")
        for _ in range(2):
            with pytest.raises(
                errors.Unauthorized, match="sudo does not take this password"
            ) as caught:
                await mac.do(Run(argv=("true",), purpose="try", as_root=True, sudo_password=WRONG))
            assert "canary" not in str(caught.value)

        await mac.do(Run(argv=("true",), purpose="try", as_root=True, sudo_password=PASSWORD))
        await stage.let_sudo_be(mac)
        await mac.do(Run(argv=("true",), purpose="try", as_root=True, sudo_password=PASSWORD))
        await mac.do(as_root)


@every_target
async def test_a_password_is_checked_at_a_prompt(target: str, tmp_path: Path) -> None:
    async with OPENERS[target](tmp_path) as stage:
        ask = {"argv": CHECK, "purpose": "check the password", "prompt": "Password:"}
        await stage.mac.do(Run(**ask, stdin=PASSWORD))  # type: ignore[arg-type]
        with pytest.raises(
            errors.CommandFailed, match=": check the password: failed with code"
        ) as caught:
            await stage.mac.do(Run(**ask, stdin=WRONG))  # type: ignore[arg-type]
        assert "canary" not in str(caught.value)


@every_target
async def test_a_wait_ends_with_yes_or_with_its_time(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        path = f"{stage.folder}/sign"
        there = Look(("ls", path), as_root=True)
        briefly = {
            "look": there,
            "purpose": "see it",
            "every": timedelta(seconds=0.2),
            "within": timedelta(seconds=0.5),
        }
        with pytest.raises(errors.TimedOut, match=": see it: not "):
            await stage.mac.do(Wait(**briefly))  # type: ignore[arg-type]
        await stage.mac.do(Wait(**briefly, else_go_on=True))  # type: ignore[arg-type]
        await stage.mac.do(Folder(path=path, purpose="make it", owner=stage.owner))
        await stage.mac.do(Wait(**{**briefly, "within": timedelta(minutes=3)}))  # type: ignore[arg-type]
        with pytest.raises(errors.TimedOut):
            await stage.mac.do(Wait(**briefly, text="never said"))  # type: ignore[arg-type]


@every_target
async def test_a_program_that_does_not_end_is_given_up_and_the_next_one_runs(
    target: str, tmp_path: Path
) -> None:
    async with ready(target, tmp_path) as stage:
        hung = Run(argv=("sleep", "600"), purpose="hang", within=timedelta(seconds=1))
        with pytest.raises(errors.TimedOut, match=": hang: no end within 1 s; it was stopped"):
            await stage.mac.do(hung)

        await stage.mac.do(Run(argv=("true",), purpose="go on"))


@simulated_targets
async def test_a_reboot_ends_with_another_boot_and_keeps_the_files(
    target: str, tmp_path: Path
) -> None:
    async with ready(target, tmp_path) as stage:
        boot = Look(("sysctl", "-n", "kern.bootsessionuuid"))
        before = (await stage.mac.look([boot])).said(boot)

        await stage.mac.do(Reboot(purpose="restart"))

        after = await stage.mac.look([boot, Find(stage.folder)])
        assert after.said(boot) != before
        assert after.found(Find(stage.folder)) is not None
