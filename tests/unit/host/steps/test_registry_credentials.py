"""Registry credentials: from the configuration file to a file of the agent, and never into a stamp, a plan or an error."""

from __future__ import annotations

import base64
import dataclasses
import json
import plistlib
from pathlib import Path

import pytest

from bramley.api.names import launchd
from bramley.app import host_config
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret
from bramley.host import converge, drift, removal, sequence
from bramley.host.artifacts import ArtifactStore
from bramley.host.commands import Stat
from bramley.host.spec import MacSpec
from bramley.host.step import Step
from bramley.host.steps.registry_credentials import RegistryCredentials
from bramley.sim.macos.connection import ModelConnection
from tests import virtual_time
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import MacTemplate, interrupt_everywhere

FILE = "/etc/tart-kubelet/registry-credentials.json"
FLAG = f"--registry-credentials-file={FILE}"
OTHER = Secret('{"auths": {"ghcr.io": {"username": "bot", "password": "canary-2"}}}')
STEP = RegistryCredentials(fixtures.REGISTRY_CREDENTIALS, "m1")


def steps(spec: MacSpec) -> list[Step]:
    return sequence.steps(spec, clock=virtual_time.clock())


def flags(connection: ModelConnection) -> list[str]:
    plist = connection.mac.files.read(launchd.daemon_plist(launchd.AGENT)) or b""
    return list(plistlib.loads(plist)["ProgramArguments"])


def content(connection: ModelConnection) -> str:
    return (connection.mac.files.read(FILE) or b"").decode()


def pid(connection: ModelConnection) -> int:
    return int(connection.mac.state["launchd"]["jobs"][f"system/{launchd.AGENT}"]["pid"])


async def apply_all(connection: ModelConnection, spec: MacSpec, *, skip: str = "") -> None:
    """Converge as `bramley host apply` does, with the removal of retired parts."""
    planned = steps(spec)
    await converge.apply(
        connection,
        sequence.select(planned, only=(), skip=[skip] if skip else []),
        later_steps=lambda stamps: sequence.retired_part_steps(planned, stamps, skip=[skip]),
    )


async def spec_of(text: str, folder: Path) -> MacSpec:
    (folder / "mac.yaml").write_text("node: mac-1\nregistryCredentialsFile: logins.json\n")
    (folder / "logins.json").write_text(text)
    config = host_config.read(folder / "mac.yaml")
    return await host_config.spec(config, folder, ArtifactStore())


async def test_agent_gets_the_file_and_its_flag(tmp_path: Path) -> None:
    spec = await spec_of(f"{fixtures.REGISTRY_CREDENTIALS.reveal()}\n", tmp_path)
    connection = await fixtures.mac(tmp_path)

    await converge.apply(
        connection, [step for step in steps(spec) if step.name == "registry-credentials"]
    )

    assert content(connection) == fixtures.REGISTRY_CREDENTIALS.reveal()
    files = connection.mac.files
    assert (files.mode(FILE), files.owner(FILE)) == (0o600, "m1:staff")
    assert spec.agent_job.registry_credentials_file == FILE
    assert "canary" not in repr(spec)


async def test_secret_is_in_no_other_file_and_in_no_result(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, STEP)

    facts = await connection.probe(STEP.probes())
    planned = await converge.plan(connection, [RegistryCredentials(OTHER, "m1")])

    assert "canary" not in repr((facts, planned, STEP))
    paths = [path for path in connection.mac.root.rglob("*") if path.is_file()]
    assert [path.name for path in paths if b"canary" in path.read_bytes()] == [Path(FILE).name]


def test_stamp_reveals_nothing_about_the_content() -> None:
    """Everyone on the Mac may read the stamps, and a short password can be found from its hash."""
    assert RegistryCredentials(OTHER, "m1").desired().stamp == STEP.desired().stamp


async def test_only_another_file_is_written_and_the_agent_keeps_running(tmp_path: Path) -> None:
    """The agent reads the file for each pull."""
    spec = fixtures.spec(tmp_path)
    connection = (await MacTemplate.make(tmp_path / "macs", *steps(spec))).copy("mac")
    process = pid(connection)
    await apply_all(connection, spec)
    assert connection.done == []

    await apply_all(connection, dataclasses.replace(spec, registry_credentials=OTHER))

    assert [command.purpose for command in connection.done] == [
        "write the registry credentials of the agent"
    ]
    assert content(connection) == OTHER.reveal()
    assert (pid(connection), FLAG in flags(connection)) == (process, True)


@pytest.mark.parametrize("damage", ["mode", "owner", "content", "link"])
async def test_changed_file_is_repaired(damage: str, tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, STEP)
    files = connection.mac.files
    if damage == "mode":
        files.at(FILE).chmod(0o644)
    elif damage == "owner":
        files.chown(FILE, "root:wheel")
    elif damage == "content":
        files.write(FILE, b"{}", mode=0o600, owner="m1:staff")
    else:
        files.rename(FILE, f"{FILE}.real")
        files.link(FILE, f"{FILE}.real")

    await converge.apply(connection, [STEP])

    stat = (await connection.probe([Stat(FILE)])).stat(Stat(FILE))
    assert stat
    assert stat.kind == "file"
    assert (files.mode(FILE), files.owner(FILE)) == (0o600, "m1:staff")
    assert content(connection) == STEP.content.reveal()


async def test_removed_field_removes_the_flag_before_the_file(tmp_path: Path) -> None:
    spec = fixtures.spec(tmp_path)
    connection = (await MacTemplate.make(tmp_path / "macs", *steps(spec))).copy("mac")
    without = dataclasses.replace(spec, registry_credentials=None)

    await apply_all(connection, without)

    purposes = [command.purpose for command in connection.done]
    loaded = purposes.index(next(each for each in purposes if "load" in each and "job" in each))
    assert loaded < purposes.index(f"remove {FILE}")
    assert not connection.mac.files.exists(FILE)
    assert FLAG not in flags(connection)
    stamps = drift.read_stamps(await connection.probe([drift.STAMPS_FILE]))
    assert drift.Part.REGISTRY_CREDENTIALS not in stamps


@pytest.mark.parametrize("case", ["the job is skipped", "no agent is configured"])
async def test_file_that_the_job_still_names_is_kept(case: str, tmp_path: Path) -> None:
    """Without the file that its flag names, the agent would not start again."""
    spec = fixtures.spec(tmp_path)
    connection = (await MacTemplate.make(tmp_path / "macs", *steps(spec))).copy("mac")
    without = dataclasses.replace(spec, registry_credentials=None)
    if case == "no agent is configured":
        await apply_all(connection, dataclasses.replace(without, agent=None))
    else:
        await apply_all(connection, without, skip="agent-job")
    assert FLAG in flags(connection)
    assert connection.mac.files.exists(FILE)

    await apply_all(connection, without)

    assert FLAG not in flags(connection)
    assert not connection.mac.files.exists(FILE)


async def test_job_that_names_a_missing_file_is_refused_before_any_change(tmp_path: Path) -> None:
    spec = fixtures.spec(tmp_path)
    before = steps(dataclasses.replace(spec, registry_credentials=None))
    connection = (await MacTemplate.make(tmp_path / "macs", *before)).copy("mac")
    selected = sequence.select(steps(spec), only=["agent-job"], skip=[])

    with pytest.raises(BadConfiguration, match=f"{FILE} is missing; apply the step registry-credentials, too"):  # fmt: skip
        await converge.apply(connection, selected)

    assert connection.done == []
    await apply_all(connection, spec)
    await converge.apply(connection, selected)


async def test_skipped_file_is_not_named_by_the_job(tmp_path: Path) -> None:
    """The agent starts without it; once the file exists, the flag stays, whatever is skipped."""
    spec = fixtures.spec(tmp_path)
    before = steps(dataclasses.replace(spec, registry_credentials=None))
    connection = (await MacTemplate.make(tmp_path / "macs", *before)).copy("mac")
    skip = ["registry-credentials"]
    selected = sequence.select(steps(spec), only=(), skip=skip)

    await converge.apply(connection, selected)
    assert FLAG not in flags(connection)
    assert (await converge.plan(connection, selected)).is_empty
    assert not (await converge.plan(connection, steps(spec))).is_empty
    await apply_all(connection, spec)
    assert FLAG in flags(connection)
    await converge.apply(connection, selected)

    assert FLAG in flags(connection)
    assert (await converge.plan(connection, steps(spec))).is_empty


async def test_interrupted_change_converges(tmp_path: Path) -> None:
    template = await MacTemplate.make(
        tmp_path / "macs", *steps(fixtures.spec(tmp_path, registry_credentials=None))
    )

    await interrupt_everywhere(template, [STEP])


async def test_removal_leaves_no_credentials(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, STEP)

    await converge.apply(
        connection, [step for step in removal.steps("m1") if step.name == "kubeconfig"]
    )

    assert not connection.mac.files.exists("/etc/tart-kubelet")


def logins(**auths: object) -> str:
    return json.dumps({"auths": auths})


def auth(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("canary", "are not JSON"),
        ("[]", "are not JSON"),
        ('{"auths": {"a": {"auth": 1, "password": "canary"}}}', "are not JSON"),
        ("{}", "contain no login"),
        (logins(), "contain no login"),
        ('{"auths": {"ghcr.io": {}}, "credsStore": "desktop"}', "no name and password for ghcr.io"),
        (logins(a={"auth": "canary!"}), "no name and password for a"),
        (logins(a={"auth": "canäry"}), "no name and password for a"),
        (logins(a=auth("canary")), "no name and password for a"),
        (logins(a=auth("canary:")), "no name and password for a"),
        (logins(a={"username": "canary"}), "no name and password for a"),
        (logins(a=auth("b:canary"), b={}), "no name and password for b"),
        (json.dumps({"auths": {"bot:canary@ghcr.io": auth("b:c")}}), "not a registry, the 1. of"),
        (json.dumps({"auths": {"a" * 300: auth("b:canary")}}), "not a registry, the 1. of"),
        ('{"canary": ' + "[" * 30_000 + "]" * 30_000 + "}", "are not JSON"),
        ("canary" * 20_000, "is larger than 64 KiB"),
    ],
)
async def test_unusable_file_is_refused_without_being_shown(
    text: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfiguration, match=problem) as caught:
        await spec_of(text, tmp_path)

    assert "logins.json" in str(caught.value)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "registry",
    ["ghcr.io", "https://index.docker.io/v1/", "registry.example:5000/team", "*.example.com"],
)
async def test_keys_of_dockers_own_file_are_accepted(registry: str, tmp_path: Path) -> None:
    text = json.dumps({"auths": {registry: auth("bot:canary")}, "credHelpers": {"other": "x"}})

    assert (await spec_of(text, tmp_path)).registry_credentials == Secret(text)


async def test_missing_file_is_reported_with_its_field(tmp_path: Path) -> None:
    (tmp_path / "mac.yaml").write_text("node: a\nregistryCredentialsFile: nowhere\n")

    with pytest.raises(
        BadConfiguration, match=r"^registryCredentialsFile: No such file .*/nowhere"
    ):
        await host_config.spec(host_config.read(tmp_path / "mac.yaml"), tmp_path, ArtifactStore())
