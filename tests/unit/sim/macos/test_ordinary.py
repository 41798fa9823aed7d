"""Programs that every Unix has, in process: as far as steps call them, and an honest no to the rest."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.unit.sim.macos.macs import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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


def test_users_have_numbers_and_groups(bench: Bench) -> None:
    assert bench.run("id", "-u").out == "501\n"
    assert bench.run("id", "-un").out == "m1\n"
    assert bench.run("id", "-Gn", "m1").out == "staff admin\n"
    assert bench.as_root("id").out == "uid=0(root) gid=0(wheel) groups=0(wheel)\n"
    assert bench.run("id", "-u", "x").err == "id: x: no such user\n"


def test_archives_are_unpacked_as_the_callers(bench: Bench) -> None:
    link = a_member("bin/link", type=tarfile.SYMTYPE)
    link.linkname = "work"
    archive = an_archive(
        (a_member("bin", mode=0o755, type=tarfile.DIRTYPE), b""),
        (a_member("bin/work", mode=0o755), b"#!/bin/sh\n"),
        (a_member("lib/deep/file"), b"f"),
        (link, b""),
    )
    bench.mac.files.write("/opt/a.tar.gz", archive)
    bench.mac.files.make_folder("/opt/a")

    said = bench.as_root("tar", "-x", "-z", "-o", "-f", "/opt/a.tar.gz", "-C", "/opt/a")

    files = bench.mac.files
    assert (said.code, said.err) == (0, "")
    assert (files.mode("/opt/a/bin/work"), files.owner("/opt/a/bin/work")) == (0o755, "root:wheel")
    assert files.target("/opt/a/bin/link") == "work"
    assert files.read("/opt/a/lib/deep/file") == b"f"
    assert bench.run("/opt/a/bin/link", "--version").code == 0


@pytest.mark.parametrize(
    "content",
    [b"no archive", an_archive((a_member("../x"), b""))],
    ids=["no archive", "a member elsewhere"],
)
def test_what_cannot_be_unpacked_fails(bench: Bench, content: bytes) -> None:
    bench.mac.files.write("/opt/a.tar.gz", content)

    assert bench.as_root("tar", "-xzf", "/opt/a.tar.gz", "-C", "/opt").code == 1
    assert bench.as_root("tar", "-xzf", "/opt/none", "-C", "/opt").code == 1
    assert bench.as_root("tar", "-xzf", "/opt/a.tar.gz", "-C", "/none").code == 1
    assert bench.mac.files.names("/opt") == ["a.tar.gz"]


def test_owners_and_modes_are_changed_by_root_and_by_who_owns(bench: Bench) -> None:
    bench.mac.files.make_folder("/opt/a/b")

    assert bench.as_root("chown", "-R", "m1:staff", "/opt/a").code == 0
    assert bench.mac.files.owner("/opt/a/b") == "m1:staff"
    assert bench.run("chmod", "700", "/opt/a").code == 0
    assert bench.mac.files.mode("/opt/a") == 0o700
    assert (
        bench.run("chown", "root:wheel", "/opt/a").err == "chown: /opt/a: Operation not permitted\n"
    )
    assert bench.run("chmod", "777", "/etc/pf.conf").code == 1
    assert bench.as_root("chown", "x:staff", "/opt/a").err == "chown: x: illegal user name\n"
    assert bench.as_root("chmod", "700", "/none").code == 1


def test_folders_are_listed_without_what_is_hidden(bench: Bench) -> None:
    for name in ("b", "a", ".hidden"):
        bench.mac.files.write(f"/opt/{name}", b"")

    assert bench.run("ls", "-1", "/opt").out == "a\nb\n"
    assert bench.run("ls", "-1A", "/opt").out == ".hidden\na\nb\n"
    assert bench.run("ls", "/none").err == "ls: /none: No such file or directory\n"


def test_files_are_read_by_who_may(bench: Bench) -> None:
    bench.mac.files.write("/opt/open", b"text\n")
    bench.mac.files.write("/opt/closed", b"", mode=0o600)

    assert bench.run("cat", "/opt/open").out == "text\n"
    assert bench.run("cat", "/opt/closed").err == "cat: /opt/closed: Permission denied\n"
    assert bench.run("cat", "/opt/none").code == 1


def test_processes_are_found_by_name_or_by_their_whole_line(bench: Bench) -> None:
    with bench.mac.change() as state:
        state["processes"].append({"pid": 77, "command": "/usr/local/bin/tart run vm"})

    assert bench.run("pgrep", "-f", "[t]art run ").out == "77\n"
    assert bench.run("pgrep", "-x", "tart").out == "77\n"
    assert bench.run("pgrep", "tart run").code == 1
    assert bench.run("pgrep", "(").code == 2


def test_of_anothers_process_only_root_is_told_more_than_the_beginning_of_its_name(
    bench: Bench,
) -> None:
    process = {"pid": 78, "command": "/bin/rather-a-long-name --option", "user": "somebody"}
    with bench.mac.change() as state:
        state["processes"].append(process)

    assert bench.run("pgrep", "-f", "option").code == 1
    assert bench.run("pgrep", "-f", "^rather-a-long-n$").out == "78\n"
    assert bench.as_root("pgrep", "-f", "long-name --option").out == "78\n"


def test_a_program_that_is_no_file_or_may_not_run_is_told(bench: Bench) -> None:
    bench.mac.files.write("/opt/plain", b"")

    assert bench.run("/opt/none").code == 127
    assert bench.run("/opt/plain").code == 126
    assert bench.run("plain").code == 127


def test_a_program_of_which_nothing_is_known_answers_as_it_was_told_to(bench: Bench) -> None:
    bench.program("/usr/local/bin/work")
    assert bench.run("work").code == 0

    with bench.mac.change() as state:
        state["answers"]["work"] = (3, "out", "err")

    said = bench.run("/usr/local/bin/work", "--version")
    assert (said.code, said.out, said.err) == (3, "out", "err")


def test_what_is_not_modelled_says_so(bench: Bench) -> None:
    for argv in (("ls", "-l", "/"), ("tar", "-c", "-f", "/x"), ("chmod", "+x")):
        assert "does not model" in bench.run(*argv).err
