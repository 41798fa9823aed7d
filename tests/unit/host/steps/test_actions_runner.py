"""The runner of a builder: registered once, with a token that is requested only for that, and loaded into the user's session."""

from __future__ import annotations

import dataclasses
import hashlib
import plistlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bramley.api.names import host
from bramley.base.errors import (
    BadConfiguration,
    CommandFailed,
    GitHubUnavailable,
    NotConverged,
    UnsupportedHost,
)
from bramley.base.secret import Secret
from bramley.host import actions_runner_job, converge, drift, removal, sequence
from bramley.host.commands import Command, Run
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.host.steps.actions_runner import ActionsRunner
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.log_rotation import LogRotation
from bramley.sim.macos.call import Call
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Fail
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.fixtures import NODE
from tests.unit.host.steps.interruption import PASSWORD, MacTemplate, interrupt_everywhere

LABEL = f"actions.runner.tuist.{NODE}"
TARGET = f"gui/501/{LABEL}"
PLIST = f"/Users/m1/Library/LaunchAgents/{LABEL}.plist"
LOGIN = AutoLogin("m1", Secret(PASSWORD))
BEFORE: list[Step] = [fixtures.SUDO, LOGIN]
CONFIG = (
    f"/opt/actions-runner/config.sh --url https://github.com/tuist --name {NODE} --labels self-hosted,vm-image-builder "
    "--work _work --unattended --replace stdin[AABBCCDDEEFFGG] in[ACTIONS_RUNNER_INPUT_TOKEN]"
)


class Tokens:
    """A source of tokens that counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> Secret:
        self.count += 1
        return Secret(f"TOKEN{self.count}")


def step(folder: Path, name: str = NODE, **changes: Any) -> ActionsRunner:
    builder = dataclasses.replace(fixtures.builder(folder), **changes)
    return ActionsRunner(builder, name, "m1")


async def registered(folder: Path, **changes: Any) -> ModelConnection:
    return await fixtures.mac(folder, LOGIN, step(folder, **changes))


def registrations(connection: ModelConnection) -> int:
    return int(connection.mac.state["actions_runner"]["registrations_count"])


def options(connection: ModelConnection) -> dict[str, str]:
    return dict(connection.mac.state["actions_runner"]["options"])


def jobs(connection: ModelConnection) -> list[str]:
    return [job for job in connection.mac.state["launchd"]["jobs"] if "actions.runner" in job]


def words_of(commands: Sequence[Command], program: str) -> list[str]:
    return [
        " ".join(command.argv[1:])
        for command in commands
        if isinstance(command, Run) and command.argv[0] == program
    ]


async def test_runner_is_installed_registered_and_loaded(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, LOGIN)

    await converge.apply(connection, [step(tmp_path)])

    done = fixtures.executed(connection)
    assert CONFIG in done
    # By name into the user's session, and by no older command of launchd.
    assert words_of(connection.done, "launchctl") == [
        f"enable {TARGET}",
        f"bootstrap gui/501 {PLIST}",
        f"kickstart -k {TARGET}",
    ]
    assert not [text for text in done if "svc.sh start" in text or "launchctl load" in text]
    files = connection.mac.files
    assert files.owner("/opt/actions-runner/config.sh") == "m1:staff"
    assert files.mode("/opt/actions-runner/runsvc.sh") == 0o755
    assert files.read("/opt/actions-runner/.path") == f"{host.SEARCH_PATH}\n".encode()
    assert connection.mac.state["launchd"]["jobs"][TARGET]["pid"]
    recorded = connection.mac.state["actions_runner"]
    assert recorded["token_sha256"] == hashlib.sha256(b"AABBCCDDEEFFGG").hexdigest()


async def test_property_list_is_that_of_a_session(tmp_path: Path) -> None:
    connection = await registered(tmp_path)

    plist = plistlib.loads(connection.mac.files.read(PLIST) or b"")

    assert plist["ProgramArguments"] == ["/opt/actions-runner/runsvc.sh"]
    assert plist["WorkingDirectory"] == "/opt/actions-runner"
    assert (plist["SessionCreate"], plist["RunAtLoad"]) == (True, True)
    assert plist["EnvironmentVariables"] == {"ACTIONS_RUNNER_SVC": "1"}
    assert connection.mac.files.owner(PLIST) == "m1:staff"


async def test_registered_runner_needs_no_token(tmp_path: Path) -> None:
    tokens = Tokens()
    connection = await fixtures.mac(tmp_path, LOGIN)
    runner = step(tmp_path, token=tokens, group="bare metal")
    await converge.plan(connection, [runner])
    assert tokens.count == 0
    await converge.apply(connection, [runner])
    assert (tokens.count, options(connection)["runnergroup"]) == (1, "bare metal")

    again = await converge.apply(connection, [runner])
    without = await converge.apply(connection, [step(tmp_path, token=None, group="bare metal")])

    assert (again.is_changed, without.is_changed) == (False, False)
    assert tokens.count == 1


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"organisation": "other"}, NODE),
        ({}, "mac-02"),
        ({"labels": ("self-hosted", "other")}, NODE),
        ({"group": "other"}, NODE),
    ],
    ids=["organisation", "name", "labels", "group"],
)
async def test_changed_registration_is_made_again(
    changes: dict[str, Any], name: str, tmp_path: Path
) -> None:
    template = await MacTemplate.make(tmp_path / "macs", *BEFORE, step(tmp_path))
    changed = step(tmp_path, name, **changes)

    state = (await interrupt_everywhere(template, [changed]))["state"]

    organisation = changes.get("organisation", "tuist")
    loaded = [job for job in state["launchd"]["jobs"] if "actions.runner" in job]
    assert loaded == [f"gui/501/actions.runner.{organisation}.{name}"]
    recorded = state["actions_runner"]["options"]
    assert recorded["labels"] == ",".join(changed.builder.labels)
    assert recorded["url"] == f"https://github.com/{organisation}"


async def test_interrupted_first_registration_converges(tmp_path: Path) -> None:
    template = await MacTemplate.make(tmp_path / "macs", *BEFORE)

    await interrupt_everywhere(template, [*BEFORE, step(tmp_path)])


async def test_other_order_of_labels_and_newer_archive_are_no_change(tmp_path: Path) -> None:
    connection = await registered(tmp_path)
    other = step(
        tmp_path,
        labels=("vm-image-builder", "self-hosted"),
        archive=fixtures.actions_runner(tmp_path, "2.331.0"),
    )

    assert (await converge.plan(connection, [other])).is_empty


async def test_runner_of_an_earlier_provider_is_taken_over(tmp_path: Path) -> None:
    """It has no note of ours, and another property list."""
    connection = await registered(tmp_path)
    connection.mac.files.remove(host.ACTIONS_RUNNER_NOTE)
    connection.mac.files.write(PLIST, b"<plist/>", owner="m1:staff")
    connection.done.clear()

    await converge.apply(connection, [step(tmp_path, token=None)])

    assert [command.purpose for command in connection.done] == [
        "record the registration of the runner"
    ]
    assert registrations(connection) == 1


async def test_job_that_is_not_loaded_is_loaded_without_a_token(tmp_path: Path) -> None:
    connection = await registered(tmp_path)
    connection.mac.run(Call(("launchctl", "bootout", TARGET), "root"))
    await connection.execute(Run(argv=("sleep", "5"), purpose="wait"))

    await converge.apply(connection, [step(tmp_path, token=None)])

    assert jobs(connection) == [TARGET]
    assert registrations(connection) == 1


async def test_missing_token_leaves_out_the_runner_only(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, LOGIN)
    last = LogRotation()

    with pytest.raises(
        UnsupportedHost,
        match=r"step actions-runner: the runner must be registered, and no .* token",
    ):
        await converge.apply(connection, [step(tmp_path, token=None), last])

    assert (await converge.plan(connection, [last])).is_empty
    assert not connection.mac.files.exists(host.ACTIONS_RUNNER)


async def test_runner_with_a_job_is_not_stopped(tmp_path: Path) -> None:
    connection = await registered(tmp_path)
    fixtures.run_job(connection.mac)
    changed = step(tmp_path, labels=("other",))

    with pytest.raises(UnsupportedHost, match="runs a job, which would be lost"):
        await converge.apply(connection, [changed])
    with pytest.raises(UnsupportedHost, match="runs a job, which would be lost"):
        await converge.apply(connection, removal.steps("m1")[:1])

    assert connection.done == []
    fixtures.run_job(connection.mac, ended=True)
    await converge.apply(connection, [changed])
    assert options(connection)["labels"] == "other"


async def test_job_that_starts_after_the_plan_is_not_lost(tmp_path: Path) -> None:
    connection = await registered(tmp_path)

    async def mint() -> Secret:
        fixtures.run_job(connection.mac)
        return Secret("TOKEN")

    with pytest.raises(Exception, match="check that the runner has taken no job since"):
        await converge.apply(connection, [step(tmp_path, labels=("other",), token=mint)])

    assert jobs(connection) == [TARGET]
    assert connection.mac.files.exists("/opt/actions-runner/.runner")


async def test_error_of_the_token_names_the_step(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, LOGIN)

    async def unavailable() -> Secret:
        raise GitHubUnavailable("GitHub does not respond")

    with pytest.raises(GitHubUnavailable, match="step actions-runner: GitHub does not respond"):
        await converge.apply(connection, [step(tmp_path, token=unavailable)])
    words = fixtures.builder(tmp_path, token=Secret("two words"))
    with pytest.raises(BadConfiguration, match="must be one word") as caught:
        await converge.apply(connection, [ActionsRunner(words, NODE, "m1")])

    assert "two words" not in str(caught.value)
    assert connection.done == []


async def test_refused_token_does_not_appear_in_the_error(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, LOGIN)
    echo = Fail(1, "Response status code: 404 for AABBCCDDEEFFGG")
    connection.faults.at(lambda one: bool(getattr(one, "stdin_variable", "")), echo)

    with pytest.raises(CommandFailed, match="register the runner at GitHub") as caught:
        await converge.apply(connection, [step(tmp_path)])

    assert "AABBCC" not in str(caught.value)
    # The next run continues, with another token.
    await converge.apply(connection, [step(tmp_path, token=Tokens())])
    assert registrations(connection) == 1


async def test_runner_that_does_not_run_is_reported(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, LOGIN)
    with connection.mac.change() as state:
        state["launchd"]["crashing"][LABEL] = 1

    with pytest.raises(NotConverged, match=rf"the runner does not run; see .*{LABEL}"):
        await converge.apply(connection, [step(tmp_path)])


async def test_damaged_installation_is_replaced(tmp_path: Path) -> None:
    connection = await registered(tmp_path)
    connection.mac.files.remove("/opt/actions-runner/config.sh")

    await converge.apply(connection, [step(tmp_path)])

    assert registrations(connection) == 2
    assert (await converge.plan(connection, [step(tmp_path)])).is_empty


async def test_removed_builder_loses_its_runner_and_environment(tmp_path: Path) -> None:
    """As `bramley host apply` does when the field is removed from the file."""
    spec = fixtures.builder_spec(tmp_path)
    parts = sequence.steps(spec)
    builder_steps = [one for one in parts if one.name in {"build-environment", "actions-runner"}]
    template = await MacTemplate.make(tmp_path / "macs", *BEFORE, *builder_steps)
    connection = template.copy("mac")
    stamps = drift.read_stamps(await connection.probe([drift.STAMPS_FILE]))
    others = sequence.steps(dataclasses.replace(spec, builder=None))
    planned = sequence.retired_part_steps(others, stamps)
    assert [one.name for one in planned] == ["without-actions-runner", "without-build-environment"]

    await interrupt_everywhere(template, planned)
    await converge.apply(connection, planned)

    assert jobs(connection) == []
    left = [host.ACTIONS_RUNNER, host.ACTIONS_RUNNER_NOTE, PLIST, host.BUILD_CACHE, host.ZSHENV]
    assert [path for path in left if connection.mac.files.exists(path)] == []


async def test_foreign_runner_is_not_removed(tmp_path: Path) -> None:
    connection = await registered(tmp_path)
    connection.mac.files.remove(host.ACTIONS_RUNNER_NOTE)

    await converge.apply(connection, removal.steps("m1")[:1])

    assert jobs(connection) == [TARGET]
    assert connection.mac.files.exists(host.ACTIONS_RUNNER)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff",
        msgspec.json.encode({"agentName": "../../etc", "gitHubUrl": "https://github.com/tuist"}),
        msgspec.json.encode({"agentName": NODE, "gitHubUrl": "https://example.com/a/b/../c"}),
    ],
)
async def test_unreadable_registration_is_replaced(content: bytes, tmp_path: Path) -> None:
    connection = await registered(tmp_path)
    connection.mac.files.write("/opt/actions-runner/.runner", content)

    await converge.apply(connection, [step(tmp_path)])

    assert registrations(connection) == 2
    assert jobs(connection) == [TARGET]


def test_notes_that_cannot_be_read_are_none() -> None:
    for content in (None, b"", b"[]", b'{"organisation": 1}'):
        facts = Facts({actions_runner_job.NOTE: content})
        assert actions_runner_job.read_note(facts) is None
