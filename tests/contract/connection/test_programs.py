"""Programs through every connection: exit codes, sudo, prompts, deadlines and errors."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host.commands import Folder, Reboot, Run, RunProbe, Stat, Wait
from bramley.host.connection import Batch
from bramley.host.facts import RunResult
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
async def test_exit_code_is_accepted_or_reported(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        mac = stage.mac
        for as_root in (False, True):
            await mac.execute(Run(argv=("true",), purpose="try", as_root=as_root))
            await mac.execute(
                Run(argv=("false",), purpose="try", as_root=as_root, accepted_codes=(0, 1))
            )
            with pytest.raises(errors.CommandFailed, match=": try: failed with code 1: ") as caught:
                await mac.execute(Run(argv=("false",), purpose="try", as_root=as_root))
            assert str(caught.value).startswith(f"{mac.host}: ")
        missing = RunProbe(("no-such-program",))
        facts = await mac.probe([RunProbe(("false",)), missing, RunProbe(("true",), as_root=True)])
        assert facts.result(RunProbe(("false",))) == RunResult(1)
        assert facts.result(missing).code == 127
        assert facts.result(RunProbe(("true",), as_root=True)) == RunResult(0)


@every_target
@pytest.mark.parametrize("after_root", [False, True], ids=["alone", "in a batch of root's"])
async def test_input_in_a_variable(target: str, *, after_root: bool, tmp_path: Path) -> None:
    """It is in the environment of the program itself, also behind sudo, which clears the environment."""
    async with ready(target, tmp_path) as stage:
        given = Run(
            argv=("printenv", "CANARY_TOKEN"),
            purpose="try",
            stdin=Secret("it's $(a) canary"),
            stdin_variable="CANARY_TOKEN",
        )
        before = [Run(argv=("true",), purpose="try", as_root=True)] if after_root else []
        await stage.mac.execute_all(Batch(commands=[*before, given]))

        with pytest.raises(errors.CommandFailed, match="failed with code 1"):
            await stage.mac.execute(Run(argv=given.argv, purpose="try"))


@every_target
async def test_sudo_password_is_sent_once_and_only_if_needed(target: str, tmp_path: Path) -> None:
    async with OPENERS[target](tmp_path) as stage:
        mac = stage.mac
        as_root = Run(argv=("true",), purpose="try", as_root=True, accepted_codes=(0, 1))
        with pytest.raises(errors.CommandFailed, match="code 1: sudo: a password is required"):
            await mac.execute(as_root)
        probe = RunProbe(("true",), as_root=True)
        assert (await mac.probe([probe])).result(probe) == RunResult(
            1, b"sudo: a password is required\n"
        )
        for _ in range(2):
            with pytest.raises(
                errors.Unauthorized, match="sudo does not accept this password"
            ) as caught:
                await mac.execute(
                    Run(argv=("true",), purpose="try", as_root=True, sudo_password=WRONG)
                )
            assert "canary" not in str(caught.value)

        await mac.execute(Run(argv=("true",), purpose="try", as_root=True, sudo_password=PASSWORD))
        await stage.allow_passwordless_sudo(mac)
        await mac.execute(Run(argv=("true",), purpose="try", as_root=True, sudo_password=PASSWORD))
        await mac.execute(as_root)


@every_target
async def test_password_is_checked_at_a_prompt(target: str, tmp_path: Path) -> None:
    async with OPENERS[target](tmp_path) as stage:
        check = {"argv": CHECK, "purpose": "check the password", "prompt": "Password:"}
        await stage.mac.execute(Run(**check, stdin=PASSWORD))  # type: ignore[arg-type]
        with pytest.raises(
            errors.CommandFailed, match=": check the password: failed with code"
        ) as caught:
            await stage.mac.execute(Run(**check, stdin=WRONG))  # type: ignore[arg-type]
        assert "canary" not in str(caught.value)


@every_target
async def test_wait_ends_with_success_or_a_timeout(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        path = f"{stage.folder}/sign"
        exists = RunProbe(("ls", path), as_root=True)
        short_wait = {
            "probe": exists,
            "purpose": "see it",
            "interval": timedelta(seconds=0.2),
            "timeout": timedelta(seconds=0.5),
        }
        with pytest.raises(errors.TimedOut, match=": see it: condition not met "):
            await stage.mac.execute(Wait(**short_wait))  # type: ignore[arg-type]
        await stage.mac.execute(Wait(**short_wait, ignore_failure=True))  # type: ignore[arg-type]
        await stage.mac.execute(Folder(path=path, purpose="make it", owner=stage.owner))
        await stage.mac.execute(Wait(**{**short_wait, "timeout": timedelta(minutes=3)}))  # type: ignore[arg-type]
        with pytest.raises(errors.TimedOut):
            await stage.mac.execute(Wait(**short_wait, text="never printed"))  # type: ignore[arg-type]


@every_target
async def test_hanging_program_is_stopped_and_the_next_one_runs(
    target: str, tmp_path: Path
) -> None:
    async with ready(target, tmp_path) as stage:
        hung = Run(argv=("sleep", "600"), purpose="hang", timeout=timedelta(seconds=1))
        with pytest.raises(
            errors.TimedOut, match=": hang: did not finish within 1 s; it was stopped"
        ):
            await stage.mac.execute(hung)

        await stage.mac.execute(Run(argv=("true",), purpose="continue"))


@simulated_targets
async def test_session_is_shown_to_root_only(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        argv = ("launchctl", "print", "gui/501")
        user, root = RunProbe(argv), RunProbe(argv, as_root=True)

        facts = await stage.mac.probe([user, root])

        assert facts.result(user) == RunResult(
            1, b"Could not print domain: 1: Operation not permitted\n"
        )
        assert facts.result(root) == RunResult(
            112, b"Bad request.\nCould not find domain for user gui: 501\n"
        )


@simulated_targets
async def test_preferences_that_root_wrote_are_readable_by_root_only(
    target: str, tmp_path: Path
) -> None:
    async with ready(target, tmp_path) as stage:
        domain = "/Library/Preferences/com.example.x"
        write = ("defaults", "write", domain, "key", "-dict-add", "number", "-int", "600")
        argv = ("defaults", "read", domain, "key")
        user, root = RunProbe(argv), RunProbe(argv, as_root=True)
        convert = ("plutil", "-convert", "xml1", "-o", "-", f"{domain}.plist")
        typed, file = RunProbe(convert, as_root=True), Stat(f"{domain}.plist")

        await stage.mac.execute(Run(argv=write, purpose="write it", as_root=True))
        facts = await stage.mac.probe([user, root, typed, file])

        assert facts.result(user).code == 1
        assert "does not exist" in facts.result(user).text
        assert facts.result(root) == RunResult(0, b"{\n    number = 600;\n}\n")
        assert "<integer>600</integer>" in facts.result(typed).text
        stat = facts.stat(file)
        assert stat is not None
        assert (stat.mode, stat.owner) == (0o600, "root:wheel")


@simulated_targets
async def test_reboot_changes_the_boot_session_and_keeps_files(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        boot = RunProbe(("sysctl", "-n", "kern.bootsessionuuid"))
        before = (await stage.mac.probe([boot])).result(boot)

        await stage.mac.execute(Reboot(purpose="restart"))

        after = await stage.mac.probe([boot, Stat(stage.folder)])
        assert after.result(boot) != before
        assert after.stat(Stat(stage.folder)) is not None
