"""The section `ghActionsRunner` of the configuration file: a builder, whose token is read only when it is needed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bramley.api.names import machines
from bramley.app import host_config
from bramley.app.host_config import config_errors
from bramley.base.errors import BadConfiguration, InvalidSpec
from bramley.base.secret import Secret
from bramley.host.artifacts import ArtifactStore
from bramley.host.spec import Builder, MacSpec
from bramley.sim.macos import stand_ins

ARCHIVE = stand_ins.actions_runner("2.330.0")
DIGEST = hashlib.sha256(ARCHIVE).hexdigest()
FILE = f"archive: {{file: runner.tar.gz, version: 2.330.0, sha256: {DIGEST}}}"


async def spec_of(section: str, folder: Path, more: str = "") -> MacSpec:
    path = folder / "mac.yaml"
    path.write_text(f"node: mac-1\n{more}\nghActionsRunner: {{{section}}}\n")
    (folder / "runner.tar.gz").write_bytes(ARCHIVE)
    with config_errors(path):
        return await host_config.spec(host_config.read(path), folder, ArtifactStore())


async def builder_of(section: str, folder: Path) -> Builder:
    spec = await spec_of(section, folder)
    assert spec.builder
    return spec.builder


async def test_section_makes_a_builder(tmp_path: Path) -> None:
    spec = await spec_of(f"org: tuist, {FILE}, labels: [a, b], group: bare metal", tmp_path)

    assert spec.agent_job.is_builder is True
    assert spec.builder
    assert (spec.builder.organisation, spec.builder.group) == ("tuist", "bare metal")
    assert spec.builder.labels == ("a", "b")
    assert (spec.builder.archive.version, spec.builder.archive.sha256) == ("2.330.0", DIGEST)
    assert spec.builder.token is None


async def test_labels_are_those_of_the_custom_resource_by_default(tmp_path: Path) -> None:
    builder = await builder_of(f"org: tuist, {FILE}", tmp_path)

    assert ",".join(builder.labels) == machines.DEFAULT_RUNNER_LABELS


async def test_token_is_read_when_it_is_requested(tmp_path: Path) -> None:
    builder = await builder_of(f"org: tuist, {FILE}, tokenFile: token", tmp_path)
    assert builder.token
    with pytest.raises(BadConfiguration, match=r"ghActionsRunner\.tokenFile: No such file"):
        await builder.token()
    (tmp_path / "token").write_text("CANARY\n")

    assert await builder.token() == Secret("CANARY")


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (f"org: tuist/x, {FILE}", "ghActionsRunner.org 'tuist/x' must be the name of a GitHub"),
        (f"org: tuist, {FILE}, labels: []", "ghActionsRunner.labels '[]' must have an entry"),
        (f"org: tuist, {FILE}, labels: [a, 'b c']", "ghActionsRunner.labels[1] 'b c' must be the"),
        (f"org: tuist, {FILE}, group: -x", "ghActionsRunner.group '-x' must be the name of a"),
        (
            "org: tuist, archive: {file: runner.tar.gz, version: 2.330.0}",
            "ghActionsRunner.archive.sha256 is missing",
        ),
        (
            f"org: tuist, archive: {{file: runner.tar.gz, version: new, sha256: {DIGEST}}}",
            "ghActionsRunner.archive.version 'new' must be a version",
        ),
        (
            f"org: tuist, archive: {{file: runner.tar.gz, version: 2.330.0, sha256: {'0' * 64}}}",
            "fetch it again",
        ),
        (
            f"org: tuist, archive: {{file: none.tar.gz, version: 2.330.0, sha256: {DIGEST}}}",
            "ghActionsRunner.archive: No such file",
        ),
        (f"org: tuist, {FILE}, token: T", "token"),
    ],
)
async def test_invalid_section_names_the_field(section: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises((BadConfiguration, InvalidSpec)) as caught:
        await spec_of(section, tmp_path)

    assert problem in str(caught.value)


async def test_builder_without_its_flag_names_the_field(tmp_path: Path) -> None:
    assert (await spec_of(f"org: tuist, {FILE}", tmp_path, "builder: true")).builder
    with pytest.raises(InvalidSpec, match="builder 'false' must be true or left out"):
        await spec_of(f"org: tuist, {FILE}", tmp_path, "builder: false")
