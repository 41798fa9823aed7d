"""The code's archive for Macs, from the wheels that the lock pins: all of it for Apple silicon, and the same bytes each time."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import bramley
from bramley.app.agent_bundle import code
from bramley.app.agent_bundle.archive import Archive, native_platforms
from bramley.base.errors import BadConfiguration
from bramley.host import agent_archive
from bramley.host.agent_archive import Kind
from tests.unit.agent_bundle import standalone_builds
from tools.agent_bundle import mac_code, standalone, wheels


@pytest.fixture(scope="module")
def fetched() -> Sequence[Path]:
    try:
        return wheels.fetched(standalone_builds.SERIES)
    except BadConfiguration as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no wheels: {error}; run with a network: python -m tools.agent_bundle fetch")


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    given = standalone_builds.write_build(tmp_path_factory.mktemp("given"))
    return standalone.build(given.path, given.sha256, tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def made(
    fetched: Sequence[Path], interpreter: Archive, tmp_path_factory: pytest.TempPathFactory
) -> Archive:
    assert fetched
    return mac_code.build(interpreter.path, tmp_path_factory.mktemp("made"))


def test_every_native_file_is_for_apple_silicon_and_none_for_linux(made: Archive) -> None:
    with tarfile.open(made.path) as archive:
        heads = {one.name: _head(archive, one) for one in archive if one.isreg()}

    found = {name: native_platforms(head) for name, head in heads.items()}
    machines = {name: machine for name, machine in found.items() if machine}
    assert all("macos-arm64" in machine for machine in machines.values())
    # Packages with native modules that the agent needs.
    libraries = {name.split("/")[1] for name in machines}
    assert {"msgspec", "aiohttp", "yaml"} <= libraries
    assert not any("-linux-" in name for name in heads)


def _head(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    held = archive.extractfile(member)
    return held.read(4096) if held else b""


def test_archive_contains_what_the_agent_imports(made: Archive) -> None:
    with tarfile.open(made.path) as archive:
        names = set(archive.getnames())

    found = code.agent_imports()
    sources = Path(bramley.__file__).parents[1]
    modules = {f"lib/{path.relative_to(sources)}" for path in found.modules.values()}
    assert modules <= names
    assert "lib/bramley/agent/supervisor.sh" in names
    for top in found.third_party:
        assert f"lib/{top}/__init__.py" in names
    assert not any("apiserver" in name or "/sim/" in name for name in names)


def test_it_starts_with_the_interpreter_it_was_built_for(
    made: Archive, interpreter: Archive
) -> None:
    manifest = agent_archive.read(made.path, Kind.CODE)

    manifest.require_interpreter(agent_archive.read(interpreter.path, Kind.INTERPRETER))
    with tarfile.open(made.path) as archive:
        held = archive.extractfile("bin/tart-kubelet")
        assert held
        assert f"/python/{interpreter.manifest.version}/bin/python3" in held.read().decode()


def test_manifest_names_each_wheel_with_its_pinned_hash(
    made: Archive, fetched: Sequence[Path]
) -> None:
    lock = wheels.LOCK.read_text()

    assert set(made.manifest.inputs) == {wheel.name for wheel in fetched}
    assert all(f"sha256:{digest}" in lock for digest in made.manifest.inputs.values())


def test_two_builds_in_different_folders_are_the_same_bytes(
    made: Archive, interpreter: Archive, tmp_path: Path
) -> None:
    again = mac_code.build(interpreter.path, tmp_path / "elsewhere")

    assert again.path.read_bytes() == made.path.read_bytes()
