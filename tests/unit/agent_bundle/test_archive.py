"""Archives: equal trees give equal archives, wherever and however they were written."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from bramley.app.agent_bundle.archive import (
    PYTHON_SERIES,
    Archive,
    ArchiveSpec,
    Link,
    Source,
    Tree,
    compile_modules,
    native_platforms,
    pack,
    require_platform,
    write_tree,
)
from bramley.base.errors import BadConfiguration
from bramley.host import agent_archive
from bramley.host.agent_archive import Kind, Platform
from tests.unit.agent_bundle.binaries import ARM64, X86_64, elf, mach_o, universal

ABOUT = ArchiveSpec(
    Kind.CODE,
    name="tart-kubelet",
    release="1.2.3",
    platform=Platform.MACOS_ARM64,
    python="3.11",
    interpreter="3.11.9+0123456789ab",
    inputs=(("b.whl", "2" * 64), ("a.whl", "1" * 64)),
)
FILES: dict[str, Source] = {
    "bin/run": b"#!/bin/sh\n",
    "bin/link": Link("run"),
    "lib/one.py": b"one = 1\n",
    "lib/deep/er/two.py": b"two = 2\n",
}


def packed(folder: Path, files: Tree = FILES) -> Archive:
    write_tree(files, folder / "stage")
    return pack(folder / "stage", ABOUT, folder / "made")


def test_archive_does_not_depend_on_folder_time_mode_or_order(tmp_path: Path) -> None:
    one = packed(tmp_path / "one")
    before = os.umask(0o077)
    try:
        other = tmp_path / "somewhere" / "else"
        write_tree(dict(reversed(FILES.items())), other / "stage")
        for path in [*other.rglob("*.py"), other / "stage/lib"]:
            os.utime(path, (1, 1))
        (other / "stage/lib/one.py").chmod(0o700)
        two = pack(other / "stage", ABOUT, other / "made")
    finally:
        os.umask(before)

    assert two.path.read_bytes() == one.path.read_bytes()
    assert (two.sha256, two.size) == (one.sha256, one.size)


def test_members_are_sorted_after_the_manifest_with_root_and_epoch(tmp_path: Path) -> None:
    with tarfile.open(packed(tmp_path).path) as archive:
        members = archive.getmembers()

    names = [member.name for member in members if not member.isdir()]
    assert names == ["manifest.json", "bin/link", "bin/run", "lib/deep/er/two.py", "lib/one.py"]
    assert {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in members} == {
        (0, 0, "", "", 0)
    }
    modes = {one.name: one.mode for one in members if not one.issym()}
    assert modes["bin/run"] == modes["lib"] == modes["lib/deep/er"] == 0o755
    assert modes["lib/one.py"] == modes["manifest.json"] == 0o644


def test_gzip_header_has_neither_name_nor_time(tmp_path: Path) -> None:
    head = packed(tmp_path).path.read_bytes()[:10]

    assert head[:2] == b"\x1f\x8b"
    assert head[3] == 0
    assert head[4:8] == bytes(4)


def test_manifest_describes_the_packed_files(tmp_path: Path) -> None:
    built = packed(tmp_path)

    found = agent_archive.read(built.path, Kind.CODE)

    assert found == built.manifest
    assert found.version == f"1.2.3+{found.content[:12]}"
    assert found.folder == f"/opt/tart-kubelet/{found.version}"
    assert built.path.name == f"tart-kubelet-{found.version}-macos-arm64.tar.gz"
    assert built.sha256 == hashlib.sha256(built.path.read_bytes()).hexdigest()
    assert built.size == built.path.stat().st_size
    assert found.inputs == {"a.whl": "1" * 64, "b.whl": "2" * 64}


@pytest.mark.parametrize(
    "change",
    [
        {"lib/one.py": b"one = 2\n"},
        {"lib/three.py": b""},
        {"bin/link": Link("other")},
        {"lib/one.py": Link("deep")},
    ],
)
def test_other_contents_give_another_version(tmp_path: Path, change: dict[str, Source]) -> None:
    one, other = packed(tmp_path / "one"), packed(tmp_path / "two", {**FILES, **change})

    assert other.manifest.version != one.manifest.version


def test_bytecode_does_not_change_the_version(tmp_path: Path) -> None:
    compiled = {**FILES, "lib/__pycache__/one.cpython-311.pyc": b"as one compiler has it"}

    one, other = packed(tmp_path / "one"), packed(tmp_path / "two", compiled)

    assert other.manifest == one.manifest
    assert other.sha256 != one.sha256


def test_names_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"lib/one\.py would overwrite lib/One\.py"):
        packed(tmp_path, {**FILES, "lib/One.py": b""})


def test_native_file_for_another_platform_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"lib/_one\.so is for linux-x86_64"):
        packed(tmp_path, {**FILES, "lib/_one.so": elf(None)})

    assert not (tmp_path / "made").exists()


def test_unpacked_files_are_the_packed_ones(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    unpack = ["tar", "-xzf", str(packed(tmp_path).path), "-C", str(tmp_path / "host")]
    subprocess.run(unpack, check=True, timeout=60)

    assert (tmp_path / "host/bin/link").read_bytes() == b"#!/bin/sh\n"
    assert stat.S_IMODE((tmp_path / "host/bin/run").stat().st_mode) == 0o755
    assert (tmp_path / "host/lib/deep/er/two.py").read_bytes() == b"two = 2\n"


def test_invalid_archive_is_refused(tmp_path: Path) -> None:
    complete = packed(tmp_path).path
    truncated, noise, other = (tmp_path / name for name in ("truncated", "noise", "other.tar.gz"))
    truncated.write_bytes(complete.read_bytes()[:40])
    noise.write_bytes(b"noise")
    with tarfile.open(other, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("readme"))

    for path in (truncated, noise, other):
        with pytest.raises(BadConfiguration, match=r"it is not an archive of the agent"):
            agent_archive.read(path, Kind.CODE)
    with pytest.raises(BadConfiguration, match="contains the agent's code, not its interpreter"):
        agent_archive.read(complete, Kind.INTERPRETER)


@pytest.mark.parametrize("version", ["../../etc", "current", "python", "1.2.3", "1.2.3+x/y", ""])
def test_version_that_is_not_a_folder_name_is_refused(tmp_path: Path, version: str) -> None:
    built = packed(tmp_path)
    text = gzip.decompress(built.path.read_bytes())
    length = len(built.manifest.version)
    forged = text.replace(
        f'"version": "{built.manifest.version}"'.encode(),
        f'"version": "{version}"{" " * (length - len(version))}'.encode(),
    )
    built.path.write_bytes(gzip.compress(forged, 1))

    with pytest.raises(BadConfiguration, match=r"has the invalid version .*: it is not an archive"):
        agent_archive.read(built.path, Kind.CODE)


def test_code_refuses_an_interpreter_that_it_was_not_built_for(tmp_path: Path) -> None:
    built = packed(tmp_path).manifest
    about = ArchiveSpec(
        Kind.INTERPRETER, name="p", release="3.11.9", platform=built.platform, python="3.11"
    )

    with pytest.raises(BadConfiguration, match=r"needs the interpreter 3\.11\.9\+0123456789ab"):
        built.require_interpreter(about.manifest("f" * 64))
    built.require_interpreter(about.manifest("0123456789ab" + "f" * 52))


@pytest.mark.parametrize(
    ("head", "platforms"),
    [
        (mach_o(ARM64), {"macos-arm64"}),
        (mach_o(X86_64), {"macos-x86_64"}),
        (universal(X86_64, ARM64), {"macos-arm64", "macos-x86_64"}),
        (elf(None), {"linux-x86_64"}),
        (elf(None, machine=0xB7), {"linux-arm64"}),
        (b"\x7fELF\x01\x01" + bytes(60), {"unknown"}),
        (b"\xca\xfe\xba\xbe\0\0\0\x41" + bytes(60), set()),
        (b"#!/bin/sh\n", set()),
        (b"", set()),
        (b"\xcf\xfa\xed\xfe", set()),
    ],
)
def test_platforms_of_a_native_file_are_read_from_its_first_bytes(
    head: bytes, platforms: set[str]
) -> None:
    assert native_platforms(head) == platforms


@pytest.mark.parametrize("wrong", [elf(None), mach_o(X86_64), b"\x7fELF\x01\x01" + bytes(60)])
def test_file_for_another_platform_is_named(tmp_path: Path, wrong: bytes) -> None:
    (tmp_path / "right.so").write_bytes(universal(X86_64, ARM64))
    (tmp_path / "wrong.so").write_bytes(wrong)

    with pytest.raises(BadConfiguration, match=r"wrong\.so is for .* does not run on macos-arm64"):
        require_platform(tmp_path, Platform.MACOS_ARM64)


def test_another_python_series_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"run the same command with python3\.99"):
        compile_modules(tmp_path, "3.99")


def test_module_with_a_syntax_error_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def :\n")
    (tmp_path / "whole.py").write_text("one = 1\n")

    compile_modules(tmp_path, PYTHON_SERIES)

    (compiled,) = tmp_path.rglob("*.pyc")
    assert compiled.name.startswith("whole.")
