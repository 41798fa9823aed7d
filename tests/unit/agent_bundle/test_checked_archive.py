"""A downloaded archive is read only with the expected hash, and is untrusted even then: nothing is written outside the folder."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bramley.base.errors import BadConfiguration
from tests.unit.agent_bundle import standalone_builds
from tools.agent_bundle import standalone
from tools.agent_bundle.checked_archive import Bounds


def link(name: str, target: str, *, type: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    made = standalone_builds.member(name)
    made.type, made.linkname = type, target
    return made


def of_type(type: bytes) -> Callable[[tarfile.TarInfo], None]:
    def change(made: tarfile.TarInfo) -> None:
        made.type = type

    return change


def refused(folder: Path, *extra: tarfile.TarInfo) -> str:
    given = standalone_builds.write_build(folder / "given", extra=extra)
    with pytest.raises(BadConfiguration) as caught:
        standalone.build(given.path, given.sha256, folder / "made")
    assert not (folder / "made").exists()
    return str(caught.value)


def test_another_hash_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    # If it were read, the error would be about its format.
    given = standalone_builds.write_file(tmp_path, b"no archive at all")

    with pytest.raises(BadConfiguration, match=rf"has the SHA-256 {given.sha256}, not {'0' * 64}"):
        standalone.build(given.path, "0" * 64, tmp_path / "made")


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "0" * 63])
def test_invalid_hash_is_refused(tmp_path: Path, text: str) -> None:
    given = standalone_builds.write_file(tmp_path, b"")

    with pytest.raises(BadConfiguration, match="SHA-256"):
        standalone.build(given.path, text, tmp_path / "made")


def test_truncated_or_invalid_archive_is_refused(tmp_path: Path) -> None:
    complete = standalone_builds.write_build(tmp_path / "whole").path.read_bytes()

    for number, contents in enumerate((b"noise", complete[: len(complete) // 2], b"")):
        given = standalone_builds.write_file(tmp_path / str(number), contents)
        with pytest.raises(BadConfiguration, match=r"is no whole \.tar\.gz"):
            standalone.build(given.path, given.sha256, tmp_path / "made")


@pytest.mark.parametrize("name", ["/etc/passwd", "python/../../etc/passwd", "../python", "."])
def test_names_outside_the_archive_are_refused(tmp_path: Path, name: str) -> None:
    assert "leads out of the archive" in refused(tmp_path, standalone_builds.member(name))


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("python/bin/x", "/etc/passwd"),
        ("python/bin/x", "../../x"),
        ("python/x", ".."),
        ("python/lib/a/x", "../b/../../../c"),
        ("python/lib/x", "inside/../python3"),
        ("python/lib/x", ""),
    ],
)
def test_links_outside_the_archive_are_refused(tmp_path: Path, name: str, target: str) -> None:
    assert "leads out of the archive" in refused(tmp_path, link(name, target))


def test_member_below_a_link_is_refused(tmp_path: Path) -> None:
    message = refused(
        tmp_path, link("python/lib/x", "python3"), standalone_builds.member("python/lib/x/y")
    )

    assert message == "lib/x/y lies behind a link"


@pytest.mark.parametrize("type", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_are_refused(tmp_path: Path, type: bytes) -> None:
    device = standalone_builds.member("python/lib/x", of_type(type))

    assert "neither a file nor a folder nor a symbolic link" in refused(tmp_path, device)


def test_hard_links_are_refused(tmp_path: Path) -> None:
    hard = link("python/lib/x", "python/bin/python3", type=tarfile.LNKTYPE)

    assert "neither a file nor a folder nor a symbolic link" in refused(tmp_path, hard)


def test_duplicate_name_is_refused(tmp_path: Path) -> None:
    again = standalone_builds.member(f"python/{standalone_builds.LIBRARY}/os.py")

    assert "comes twice" in refused(tmp_path, again)


@pytest.mark.parametrize(
    "bounds", [Bounds(members=5), Bounds(member_bytes=20), Bounds(total_bytes=100)]
)
def test_too_large_archive_is_refused(tmp_path: Path, bounds: Bounds) -> None:
    given = standalone_builds.write_build(tmp_path)

    with pytest.raises(BadConfiguration, match="more than"):
        standalone.build(given.path, given.sha256, tmp_path / "made", bounds=bounds)
