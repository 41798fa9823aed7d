"""The interpreter archive for Macs: the files of the standalone build that an agent needs, with unchanged binaries."""

from __future__ import annotations

import importlib.util
import tarfile
from pathlib import Path

import pytest

from bramley.base.errors import BadConfiguration
from bramley.host import agent_archive
from bramley.host.agent_archive import Kind, Platform
from tests.unit.agent_bundle import standalone_builds
from tests.unit.agent_bundle.binaries import X86_64, elf, mach_o
from tests.unit.agent_bundle.standalone_builds import KEPT, RELEASE, SERIES
from tools.agent_bundle import standalone


def test_needed_files_are_unchanged(tmp_path: Path) -> None:
    given = standalone_builds.write_build(tmp_path)

    built = standalone.build(given.path, given.sha256.upper(), tmp_path / "made")

    with tarfile.open(built.path) as archive:
        files = {one.name: archive.extractfile(one) for one in archive if one.isreg()}
        found = {name: file.read() for name, file in files.items() if file}
        links = {one.name: one.linkname for one in archive.getmembers() if one.issym()}
    sources = {name: text for name, text in found.items() if not name.endswith(".pyc")}
    sources.pop("manifest.json")
    assert sources == KEPT
    assert links == {"bin/python3": f"python{SERIES}"}


def test_manifest_describes_the_archive(tmp_path: Path) -> None:
    given = standalone_builds.write_build(tmp_path)

    built = standalone.build(given.path, given.sha256, tmp_path / "made")

    manifest = agent_archive.read(built.path, Kind.INTERPRETER)
    assert manifest.version.startswith(f"{RELEASE}+")
    assert (manifest.platform, manifest.python) == (Platform.MACOS_ARM64, SERIES)
    assert manifest.inputs == {standalone_builds.NAME: given.sha256}
    assert manifest.folder == f"/opt/tart-kubelet/python/{manifest.version}"


def test_build_is_reproducible_in_any_folder(tmp_path: Path) -> None:
    one, other = (
        standalone_builds.write_build(tmp_path / "one"),
        standalone_builds.write_build(tmp_path / "an/other"),
    )

    first = standalone.build(one.path, one.sha256, tmp_path / "made")
    second = standalone.build(other.path, other.sha256, tmp_path / "made" / "again")

    assert second.path.read_bytes() == first.path.read_bytes()
    assert second.path.name == first.path.name


def test_bytecode_contains_no_time_and_no_build_path(tmp_path: Path) -> None:
    given = standalone_builds.write_build(tmp_path)

    built = standalone.build(given.path, given.sha256, tmp_path / "made")

    with tarfile.open(built.path) as archive:
        name = importlib.util.cache_from_source(
            f"{standalone_builds.LIBRARY}/os.py", optimization=""
        )
        file = archive.extractfile(name)
        assert file
        compiled = file.read()
    assert compiled[:4] == importlib.util.MAGIC_NUMBER
    # An unchecked hash-based pyc: the source and its time are not compared.
    assert compiled[4:8] == bytes([1, 0, 0, 0])
    assert f"{standalone_builds.LIBRARY}/os.py".encode() in compiled
    assert str(tmp_path).encode() not in compiled
    assert b"agent-bundle-" not in compiled


@pytest.mark.parametrize("program", [elf(None), mach_o(X86_64), b"#!/bin/sh\n"])
def test_interpreter_for_another_platform_is_refused(tmp_path: Path, program: bytes) -> None:
    given = standalone_builds.write_build(tmp_path, files={f"bin/python{SERIES}": program})

    with pytest.raises(BadConfiguration, match=r"is not for macos-arm64; give an aarch64-apple"):
        standalone.build(given.path, given.sha256, tmp_path / "made")


def test_another_python_series_is_refused(tmp_path: Path) -> None:
    header = f"include/python{SERIES}/patchlevel.h"
    given = standalone_builds.write_build(tmp_path, files={header: b'#define PY_VERSION "3.9.1"\n'})

    with pytest.raises(BadConfiguration, match=r"run the same command with python3\.9"):
        standalone.build(given.path, given.sha256, tmp_path / "made")


def test_archive_without_an_interpreter_is_refused(tmp_path: Path) -> None:
    given = standalone_builds.write_build(
        tmp_path, files={f"include/python{SERIES}/patchlevel.h": b""}
    )

    with pytest.raises(BadConfiguration, match="holds no interpreter"):
        standalone.build(given.path, given.sha256, tmp_path / "made")
