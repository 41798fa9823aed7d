"""Folders that are shared with a hostile guest."""

from __future__ import annotations

import contextlib
import inspect
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bramley.agent.guest.folders import UserData
from bramley.base import errors
from bramley.base.secret import Secret

VM = "ns-build-0123456789ab"
UNPRIVILEGED = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@pytest.fixture
def folders(tmp_path: Path) -> UserData:
    return UserData(tmp_path / "userdata")


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_only_the_guests_share_is_open_to_others(folders: UserData, mask: int) -> None:
    before = os.umask(mask)
    try:
        shares = folders.prepare(VM)
        folders.write_environment(VM, "A=1\n")
        folders.write_token(VM, Secret("t"))
    finally:
        os.umask(before)

    assert mode(folders.root) == 0o700
    assert (mode(shares.env), mode(shares.status)) == (0o700, 0o777)
    assert (mode(shares.env / "tuist.env"), mode(shares.env / "sa_token")) == (0o600, 0o600)


def test_existing_folders_get_their_modes(folders: UserData) -> None:
    shares = folders.prepare(VM)
    shares.env.chmod(0o755)
    shares.status.chmod(0o700)

    folders.prepare(VM)

    assert (mode(shares.env), mode(shares.status)) == (0o700, 0o777)


def test_link_is_not_taken_for_a_folder(folders: UserData, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    folders.root.mkdir()
    (folders.root / VM).symlink_to(elsewhere)

    with pytest.raises(OSError, match=VM):
        folders.prepare(VM)

    assert mode(elsewhere) == 0o755
    assert list(elsewhere.iterdir()) == []


def test_link_cannot_redirect_the_guests_share(folders: UserData, tmp_path: Path) -> None:
    shares = folders.prepare(VM)
    shares.status.rmdir()
    shares.status.symlink_to(tmp_path)
    (tmp_path / "runner-rc").write_text("0")

    assert folders.open_guest_file(VM, "runner-rc") is None


def test_file_is_replaced_atomically(folders: UserData) -> None:
    shares = folders.prepare(VM)
    folders.write_token(VM, Secret("old"))
    with (shares.env / "sa_token").open() as reader:
        folders.write_token(VM, Secret("new"))

        assert reader.read() == "old"

    assert (shares.env / "sa_token").read_text() == "new"
    assert names(shares.env) == ["sa_token", "status"]


def test_remains_of_an_interrupted_write_do_not_matter(folders: UserData) -> None:
    shares = folders.prepare(VM)
    (shares.env / ".sa_token.new").symlink_to("/dev/null")

    folders.write_token(VM, Secret("whole"))

    assert (shares.env / "sa_token").read_text() == "whole"
    assert mode(shares.env / "sa_token") == 0o600


def test_nothing_is_written_for_a_deleted_vm(folders: UserData) -> None:
    folders.root.mkdir()

    with pytest.raises(errors.NotFound):
        folders.write_token(VM, Secret("late"))

    assert folders.vms() == []


def test_token_round_trips(folders: UserData) -> None:
    folders.prepare(VM)

    assert folders.read_token(VM) is None
    folders.write_token(VM, Secret("mine"))
    assert folders.read_token(VM) == Secret("mine")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\0b"])
def test_name_is_one_part_of_a_path(folders: UserData, name: str) -> None:
    with pytest.raises(errors.BadRequest):
        folders.prepare(name)


async def test_remove_deletes_only_the_data_of_one_vm(folders: UserData) -> None:
    folders.prepare(VM)
    folders.write_environment(VM, "A=1\n")
    folders.prepare("other")

    await folders.remove(VM)
    await folders.remove(VM)

    assert folders.vms() == ["other"]
    assert names(folders.root) == ["other"]


async def test_remove_without_data_succeeds(folders: UserData) -> None:
    await folders.remove(VM)

    assert not folders.root.exists()


async def test_remove_follows_no_link(folders: UserData, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    status = folders.prepare(VM).status
    (status / "folder").symlink_to(precious)
    (status / "file").symlink_to(precious / "file")
    (status / "inner").mkdir()
    (status / "inner" / "folder").symlink_to(precious)

    await folders.remove(VM)

    assert (precious / "file").read_text() == "kept"
    assert names(folders.root) == []


# Too deep for a path or a stack, yet not too deep for the clean-up of an interrupted test.
DEPTH, FRAMES = 400, 100


def create_deep_folders(folder: Path) -> None:
    """Create nested folders, deeper than the longest path."""
    number = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("deeper" * 8, dir_fd=number)
        inner = os.open("deeper" * 8, os.O_RDONLY, dir_fd=number)
        os.close(number)
        number = inner
    os.close(number)


@contextlib.contextmanager
def low_stack() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


async def test_tree_deeper_than_a_path_is_removed(folders: UserData) -> None:
    create_deep_folders(folders.prepare(VM).status)

    with low_stack():
        await folders.remove(VM)

    assert names(folders.root) == []


async def test_large_folder_with_our_own_names_is_removed(folders: UserData) -> None:
    status = folders.prepare(VM).status
    for number in range(600):
        (status / f"f{number}").touch()
        (status / f"d{number}").mkdir()
    (status / "d1" / ".moved-1").mkdir()
    os.mkfifo(status / "pipe")

    await folders.remove(VM)

    assert names(folders.root) == []


@contextlib.contextmanager
def unprivileged(folder: Path) -> Iterator[UserData]:
    """Work in a folder as a user to whom file modes apply; they do not apply to root."""
    before, is_root = Path.cwd(), os.geteuid() == 0
    os.chdir(folder)
    if is_root:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED, follow_symlinks=False)
        os.seteuid(UNPRIVILEGED)
    try:
        # That user may not have access to the parent folders.
        yield UserData(Path())
    finally:
        if is_root:
            os.seteuid(0)
        os.chdir(before)


async def test_folder_without_permissions_is_removed(folders: UserData) -> None:
    status = folders.prepare(VM).status
    (status / "a" / "b" / "c").mkdir(parents=True)
    with unprivileged(folders.root) as seen:
        for folder in ("a/b/c", "a/b", "a"):
            (seen.shares(VM).status / folder).chmod(0o000)

        await seen.remove(VM)

    assert names(folders.root) == []


async def test_interrupted_removal_is_finished(folders: UserData) -> None:
    shares = folders.prepare(VM)
    (shares.env / ".moved-7" / "inner").mkdir(parents=True)
    (shares.status / "a" / "b").mkdir(parents=True)

    await folders.remove(VM)

    assert names(folders.root) == []


async def test_data_that_cannot_be_removed_is_quarantined_without_its_secrets(
    folders: UserData, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = folders.prepare(VM)
    folders.write_token(VM, Secret("t"))
    (shares.status / "stubborn").touch()
    unlink = os.unlink

    def refused(name: str, *, dir_fd: int | None = None) -> None:
        if name == "stubborn":
            raise PermissionError(1, "immutable", name)
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refused)
        await folders.remove(VM)
        (quarantined,) = folders.root.iterdir()
        await folders.sweep()

    assert folders.vms() == []
    assert sorted(one.name for one in quarantined.rglob("*")) == ["status", "stubborn"]
    await folders.sweep()
    assert names(folders.root) == []


def test_guests_file_must_be_a_regular_one(folders: UserData, tmp_path: Path) -> None:
    status = folders.prepare(VM).status
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    (status / "link").symlink_to(secret)
    (status / "folder").mkdir()
    os.mkfifo(status / "pipe")
    (status / "file").write_text("of the guest")

    assert [folders.open_guest_file(VM, name) for name in ("link", "folder", "pipe", "none")] == [
        None
    ] * 4
    file = folders.open_guest_file(VM, "file")
    assert file is not None
    with file:
        assert file.read() == b"of the guest"
