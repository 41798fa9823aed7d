"""Unix programs of the in-process Mac; other calls are refused."""

from __future__ import annotations

import io
import tarfile

import pytest

from tests.unit.sim.macos.harness import MacHarness


def an_archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def a_member(name: str, *, mode: int = 0o644, type: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode, member.type = mode, type
    return member


def test_users_have_uids_and_groups(harness: MacHarness) -> None:
    assert harness.run("id", "-u").out == "501\n"
    assert harness.run("id", "-un").out == "m1\n"
    assert harness.run("id", "-Gn", "m1").out == "staff admin\n"
    assert harness.as_root("id").out == "uid=0(root) gid=0(wheel) groups=0(wheel)\n"
    assert harness.run("id", "-u", "x").err == "id: x: no such user\n"


def test_unpacked_files_belong_to_the_caller(harness: MacHarness) -> None:
    link = a_member("bin/link", type=tarfile.SYMTYPE)
    link.linkname = "work"
    archive = an_archive(
        (a_member("bin", mode=0o755, type=tarfile.DIRTYPE), b""),
        (a_member("bin/work", mode=0o755), b"#!/bin/sh\n"),
        (a_member("lib/deep/file"), b"f"),
        (link, b""),
    )
    harness.mac.files.write("/opt/a.tar.gz", archive)
    harness.mac.files.make_folder("/opt/a")

    result = harness.as_root("tar", "-x", "-z", "-o", "-f", "/opt/a.tar.gz", "-C", "/opt/a")

    files = harness.mac.files
    assert (result.code, result.err) == (0, "")
    assert (files.mode("/opt/a/bin/work"), files.owner("/opt/a/bin/work")) == (0o755, "root:wheel")
    assert files.target("/opt/a/bin/link") == "work"
    assert files.read("/opt/a/lib/deep/file") == b"f"
    assert harness.run("/opt/a/bin/link", "--version").code == 0


@pytest.mark.parametrize(
    "content",
    [b"no archive", an_archive((a_member("../x"), b""))],
    ids=["no archive", "a member elsewhere"],
)
def test_invalid_archive_fails(harness: MacHarness, content: bytes) -> None:
    harness.mac.files.write("/opt/a.tar.gz", content)

    assert harness.as_root("tar", "-xzf", "/opt/a.tar.gz", "-C", "/opt").code == 1
    assert harness.as_root("tar", "-xzf", "/opt/none", "-C", "/opt").code == 1
    assert harness.as_root("tar", "-xzf", "/opt/a.tar.gz", "-C", "/none").code == 1
    assert harness.mac.files.names("/opt") == ["a.tar.gz"]


def test_root_changes_owners_and_owners_change_modes(harness: MacHarness) -> None:
    harness.mac.files.make_folder("/opt/a/b")

    assert harness.as_root("chown", "-R", "m1:staff", "/opt/a").code == 0
    assert harness.mac.files.owner("/opt/a/b") == "m1:staff"
    assert harness.run("chmod", "700", "/opt/a").code == 0
    assert harness.mac.files.mode("/opt/a") == 0o700
    assert (
        harness.run("chown", "root:wheel", "/opt/a").err
        == "chown: /opt/a: Operation not permitted\n"
    )
    assert harness.run("chmod", "777", "/etc/pf.conf").code == 1
    assert harness.as_root("chown", "x:staff", "/opt/a").err == "chown: x: illegal user name\n"
    assert harness.as_root("chmod", "700", "/none").code == 1


def test_folders_are_listed_without_hidden_files(harness: MacHarness) -> None:
    for name in ("b", "a", ".hidden"):
        harness.mac.files.write(f"/opt/{name}", b"")

    assert harness.run("ls", "-1", "/opt").out == "a\nb\n"
    assert harness.run("ls", "-1A", "/opt").out == ".hidden\na\nb\n"
    assert harness.run("ls", "/none").err == "ls: /none: No such file or directory\n"


def test_files_are_read_with_permission_only(harness: MacHarness) -> None:
    harness.mac.files.write("/opt/open", b"text\n")
    harness.mac.files.write("/opt/closed", b"", mode=0o600)

    assert harness.run("cat", "/opt/open").out == "text\n"
    assert harness.run("cat", "/opt/closed").err == "cat: /opt/closed: Permission denied\n"
    assert harness.run("cat", "/opt/none").code == 1


def test_processes_are_found_by_name_or_command_line(harness: MacHarness) -> None:
    with harness.mac.change() as state:
        state["processes"].append({"pid": 77, "command": "/usr/local/bin/tart run vm"})

    assert harness.run("pgrep", "-f", "[t]art run ").out == "77\n"
    assert harness.run("pgrep", "-x", "tart").out == "77\n"
    assert harness.run("pgrep", "tart run").code == 1
    assert harness.run("pgrep", "(").code == 2


def test_only_root_sees_the_command_line_of_other_users(harness: MacHarness) -> None:
    process = {"pid": 78, "command": "/bin/rather-a-long-name --option", "user": "another"}
    with harness.mac.change() as state:
        state["processes"].append(process)

    assert harness.run("pgrep", "-f", "option").code == 1
    assert harness.run("pgrep", "-f", "^rather-a-long-n$").out == "78\n"
    assert harness.as_root("pgrep", "-f", "long-name --option").out == "78\n"


def test_missing_or_not_executable_program_is_reported(harness: MacHarness) -> None:
    harness.mac.files.write("/opt/plain", b"")

    assert harness.run("/opt/none").code == 127
    assert harness.run("/opt/plain").code == 126
    assert harness.run("plain").code == 127


def test_program_that_is_not_modelled_has_a_configured_result(harness: MacHarness) -> None:
    harness.program("/usr/local/bin/work")
    assert harness.run("work").code == 0

    with harness.mac.change() as state:
        state["answers"]["work"] = (3, "out", "err")

    result = harness.run("/usr/local/bin/work", "--version")
    assert (result.code, result.out, result.err) == (3, "out", "err")


def test_call_that_is_not_modelled_is_refused(harness: MacHarness) -> None:
    for argv in (("ls", "-l", "/"), ("tar", "-c", "-f", "/x"), ("chmod", "+x")):
        assert "does not model" in harness.run(*argv).err
