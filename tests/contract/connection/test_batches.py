"""Batches through every connection: in order, until a failure, under a claim, and with the probes that follow."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bramley.api.names import host
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host.artifacts import Artifact
from bramley.host.claim import CLAIM_FILE, Claim
from bramley.host.commands import (
    Command,
    Folder,
    Probe,
    ReadFile,
    Reboot,
    Rename,
    Run,
    RunProbe,
    Stat,
    Stream,
    Wait,
    Write,
)
from bramley.host.connection import Batch
from bramley.host.facts import RunResult
from tests.contract.connection.targets import Stage, every_target, ready, simulated_targets
from tests.unit.host.steps import fixtures

OURS, THEIRS = Claim(run="1", by="us"), Claim(run="2", by="laptop")


def write(stage: Stage, name: str, content: bytes | Secret = b"x") -> Write:
    path = f"{stage.folder}/{name}"
    return Write(path=path, content=content, purpose=f"write {name}", owner=stage.owner)


def names(stage: Stage) -> set[str]:
    return {path.name for path in stage.real.iterdir()}


@every_target
async def test_commands_are_executed_in_order_and_probes_follow(
    target: str, tmp_path: Path
) -> None:
    async with ready(target, tmp_path) as stage:
        artifact = fixtures.artifact(tmp_path, "a", "1", b"streamed")
        renamed = f"{stage.folder}/d/s"
        commands: list[Command] = [
            Folder(path=f"{stage.folder}/d", purpose="make it", owner=stage.owner),
            write(stage, "d/f", Secret("it's\nsecret")),
            stream(stage, artifact),
            Rename(path=f"{stage.folder}/s", to=renamed, purpose="rename it"),
            Run(argv=("chmod", "0600", renamed), purpose="restrict it", as_root=True),
            Wait(probe=RunProbe(("ls", renamed), as_root=True), purpose="see it"),
            Run(argv=("true",), purpose="try as the user"),
        ]
        started: list[int] = []
        probes: list[Probe] = [ReadFile(renamed, as_root=True), RunProbe(("false",)), Stat(renamed)]

        result = await stage.mac.execute_all(
            Batch(commands=commands, probes=probes), on_started=started.append
        )

        assert started == [*range(len(commands))]
        assert result.facts.file(ReadFile(renamed, as_root=True)) == b"streamed"
        assert result.facts.result(RunProbe(("false",))) == RunResult(1)
        stat = result.facts.stat(Stat(renamed))
        assert stat is not None
        assert stat.mode == 0o600
        assert (stage.real / "d" / "f").read_text() == "it's\nsecret"


def stream(stage: Stage, artifact: Artifact) -> Stream:
    return Stream(
        artifact=artifact, path=f"{stage.folder}/s", purpose="stream it", owner=stage.owner
    )


@every_target
async def test_batch_ends_at_the_first_failure(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        ignored = Run(argv=("false",), purpose="try", as_root=True, ignore_failure=True)
        failing = Run(argv=("false",), purpose="fail", as_root=True, stdin=Secret("canary-stdin"))
        commands: list[Command] = [ignored, write(stage, "one"), failing, write(stage, "two")]
        started: list[int] = []

        with pytest.raises(errors.CommandFailed, match=": fail: failed with code 1: ") as caught:
            await stage.mac.execute_all(Batch(commands=commands), on_started=started.append)
        result = await stage.mac.execute_all(Batch(commands=commands[:2]))

        assert str(caught.value).startswith(f"{stage.mac.host}: ")
        assert "canary" not in str(caught.value)
        assert (started, names(stage)) == ([0, 1, 2], {"one"})
        assert result.ignored_failure.startswith("try: failed with code 1: ")


@every_target
async def test_unmet_condition_ends_the_batch_unless_it_is_ignored(
    target: str, tmp_path: Path
) -> None:
    async with ready(target, tmp_path) as stage:
        options = {"interval": timedelta(seconds=0.2), "timeout": timedelta(seconds=1)}
        never = {"probe": RunProbe(("false",)), "purpose": "see it", **options}
        waiting: list[Command] = [Wait(**never), write(stage, "one")]  # type: ignore[arg-type]
        with pytest.raises(errors.TimedOut, match=": see it: condition not met within 1 s"):
            await stage.mac.execute_all(Batch(commands=waiting))
        assert names(stage) == set()

        waiting[0] = Wait(**never, ignore_failure=True)  # type: ignore[arg-type]
        await stage.mac.execute_all(Batch(commands=waiting))
        assert names(stage) == {"one"}


@every_target
async def test_hanging_command_of_a_batch_is_stopped(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        hung = Run(argv=("sleep", "600"), purpose="hang", timeout=timedelta(seconds=1))
        commands: list[Command] = [write(stage, "one"), hung, write(stage, "two")]
        with pytest.raises(errors.TimedOut, match=": hang: did not finish within 1 s; it was"):
            await stage.mac.execute_all(Batch(commands=commands))
        assert names(stage) == {"one"}


@simulated_targets
async def test_run_stops_at_the_claim_of_another_one(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        artifact = fixtures.artifact(tmp_path, "a", "1", b"streamed")
        guard = OURS.guard()
        first = Batch(commands=[write(stage, "one")], guard=guard.acquiring(None))
        await stage.mac.execute_all(first)
        await stage.mac.execute_all(Batch(commands=[write(stage, "two")], guard=guard))
        other = THEIRS.guard().acquiring(guard.content)
        await stage.mac.execute_all(Batch(commands=[write(stage, "theirs")], guard=other))

        for command in (write(stage, "never"), stream(stage, artifact), Reboot(purpose="never")):
            with pytest.raises(errors.Conflict, match=r"another run works on this Mac \(laptop\)"):
                await stage.mac.execute_all(Batch(commands=[command], guard=guard))
            with pytest.raises(errors.Conflict, match=r"another run works on this Mac \(laptop\)"):
                await stage.mac.execute_all(Batch(commands=[command], guard=guard.acquiring(None)))

        assert names(stage) == {"one", "two", "theirs"}
        assert (await stage.mac.probe([CLAIM_FILE])).file(CLAIM_FILE) == other.content


@simulated_targets
async def test_mac_is_claimed_again_after_its_reboot(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        commands: list[Command] = [Reboot(purpose="restart"), write(stage, "one")]
        batch = Batch(commands=commands, guard=OURS.guard().acquiring(None), probes=[CLAIM_FILE])

        result = await stage.mac.execute_all(batch)

        assert result.facts.file(CLAIM_FILE) == OURS.guard().content
        assert names(stage) == {"one"}


@simulated_targets
async def test_lost_answer_of_a_batch_is_reported(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        stage.lose_answer()
        with pytest.raises(errors.HostUnreachable):
            await stage.mac.execute_all(Batch(commands=[write(stage, "one"), write(stage, "two")]))
        await stage.mac.execute_all(Batch(commands=[write(stage, "three")]))
        assert {"one", "three"} <= names(stage)


@simulated_targets
async def test_links_of_runs_do_not_stay(target: str, tmp_path: Path) -> None:
    async with ready(target, tmp_path) as stage:
        guard = OURS.guard().acquiring(None)
        artifact = fixtures.artifact(tmp_path, "a", "1", b"streamed")
        commands: list[Command] = [write(stage, "one"), stream(stage, artifact)]
        await stage.mac.execute_all(Batch(commands=commands, guard=guard))

        listing = RunProbe(("ls", host.CLAIM.rpartition("/")[0]), as_root=True)
        names_in_folder = (await stage.mac.probe([listing])).result(listing).text.split()
        assert [each for each in names_in_folder if "claim" in each] == [
            host.CLAIM.rpartition("/")[2]
        ]
