"""Files of a simulated Mac: links inside the root, owners kept by the kernel or in the state, atomic writes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bramley.sim.macos import faults
from bramley.sim.macos.files import Files
from tests.unit.sim.macos.harness import MacHarness


@pytest.fixture(params=[True, False], ids=["kernel keeps owners", "state keeps owners"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> MacHarness:
    return MacHarness(tmp_path, can_chown=request.param)


def test_bare_mac_has_apples_packet_filter_and_links_at_the_top(tmp_path: Path) -> None:
    files = MacHarness(tmp_path).mac.files

    assert 'nat-anchor "com.apple/*"' in files.text("/etc/pf.conf")
    assert files.target("/etc") == "private/etc"
    assert files.real("/etc/pf.conf") == "/private/etc/pf.conf"
    assert files.names("/etc/sudoers.d") == []


def test_users_own_their_homes_and_root_the_rest(harness: MacHarness) -> None:
    files = harness.mac.files

    assert files.owner("/Users/m1") == "m1:staff"
    assert files.owner("/etc/pf.conf") == "root:wheel"


def test_owner_moves_with_its_file(harness: MacHarness) -> None:
    files = harness.mac.files
    files.make_folder("/opt/a")
    files.write("/opt/a/file", b"", owner="m1:staff", mode=0o600)

    files.rename("/opt/a", "/opt/b")

    assert files.owner("/opt/b/file") == "m1:staff"
    assert files.mode("/opt/b/file") == 0o600


def test_file_that_is_renamed_to_itself_keeps_its_owner(harness: MacHarness) -> None:
    files = harness.mac.files
    files.write("/opt/file", b"", owner="m1:staff")

    files.rename("/opt/file", "/opt/file")

    assert files.owner("/opt/file") == "m1:staff"


def linked(harness: MacHarness) -> Files:
    """Return the files of a Mac on which one folder is reached through a link beside another."""
    files = harness.mac.files
    for folder in ("/opt/a", "/opt/b"):
        files.make_folder(folder)
    files.link("/opt/now", "a")
    return files


def test_changed_link_is_followed_at_once(harness: MacHarness) -> None:
    files = linked(harness)

    with harness.mac.caching():
        assert files.real("/opt/now/file") == "/opt/a/file"
        files.link("/opt/now", "b")
        assert files.real("/opt/now/file") == "/opt/b/file"
        files.remove("/opt/now")
        assert files.real("/opt/now/file") == "/opt/now/file"


def test_link_changed_by_others_is_followed_after_caching(harness: MacHarness) -> None:
    files = linked(harness)
    with harness.mac.caching():
        assert files.real("/opt/now/file") == "/opt/a/file"
    link = files.at("/opt/now", follow=False)
    link.unlink()
    link.symlink_to("b")

    with harness.mac.caching():
        assert files.real("/opt/now/file") == "/opt/b/file"


def test_owner_is_removed_with_its_file(harness: MacHarness) -> None:
    files = harness.mac.files
    files.write("/opt/file", b"", owner="m1:staff")

    files.remove("/opt/file")
    files.write("/opt/file", b"")

    assert files.owner("/opt/file") == "root:wheel"


def test_file_that_replaces_another_keeps_its_owner(harness: MacHarness) -> None:
    files = harness.mac.files
    files.write("/opt/old", b"", owner="m1:staff")
    files.write("/opt/new", b"", owner="root:wheel")

    files.rename("/opt/new", "/opt/old")

    assert files.owner("/opt/old") == "root:wheel"


def test_unknown_owner_is_refused(harness: MacHarness) -> None:
    with pytest.raises(LookupError, match="illegal user name"):
        harness.mac.files.chown("/etc/pf.conf", "no-such-user:staff")


def test_write_for_an_unknown_owner_keeps_the_old_file(harness: MacHarness) -> None:
    harness.mac.files.write("/opt/file", b"old", owner="m1:staff")

    with pytest.raises(LookupError):
        harness.mac.files.write("/opt/file", b"new", owner="no-such-user:staff")

    assert harness.mac.files.read("/opt/file") == b"old"
    assert harness.mac.files.owner("/opt/file") == "m1:staff"


def test_links_are_followed_inside_the_root_only(tmp_path: Path) -> None:
    files = MacHarness(tmp_path).mac.files
    files.link("/opt/up", "../../../../../../etc")
    files.link("/opt/absolute", "/etc/pf.conf")

    assert files.real("/opt/up/pf.conf") == "/private/etc/pf.conf"
    assert files.read("/opt/absolute") == files.read("/etc/pf.conf")


def test_files_removed_during_a_walk_are_skipped(tmp_path: Path) -> None:
    files = MacHarness(tmp_path).mac.files
    files.make_folder("/opt/a")
    for name in ("1", "2", "3"):
        files.write(f"/opt/a/{name}", b"")

    seen = []
    for path, _ in files.facts("/opt/a"):
        seen.append(path)
        files.remove("/opt/a/2")

    assert seen == ["/opt/a/1", "/opt/a/3"]


def test_link_loop_is_an_error(tmp_path: Path) -> None:
    files = MacHarness(tmp_path).mac.files
    files.link("/opt/a", "/opt/b")
    files.link("/opt/b", "/opt/a")

    with pytest.raises(OSError, match="symbolic links") as error:
        files.read("/opt/a")

    assert error.value.errno == errno.ELOOP


def test_writing_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    files = MacHarness(tmp_path).mac.files
    files.write("/opt/target", b"old")
    files.link("/opt/link", "target")

    files.write("/opt/link", b"new")

    assert files.read("/opt/target") == b"old"
    assert files.read("/opt/link") == b"new"


def test_full_disk_refuses_a_write_and_keeps_the_old_file(tmp_path: Path) -> None:
    harness = MacHarness(tmp_path)
    harness.mac.files.write("/opt/file", b"old")
    faults.set_free_space(harness.mac, 0)

    with pytest.raises(OSError, match="No space left"):
        harness.mac.files.write("/opt/file", b"new")

    assert harness.mac.files.read("/opt/file") == b"old"


def test_folder_is_not_replaced_by_a_file_or_a_link(tmp_path: Path) -> None:
    files = MacHarness(tmp_path).mac.files
    files.write("/tmp/file", b"")

    with pytest.raises(IsADirectoryError):
        files.write("/opt", b"")
    with pytest.raises(IsADirectoryError):
        files.link("/opt", "etc")
    with pytest.raises(IsADirectoryError):
        files.rename("/tmp/file", "/opt")


def test_missing_parents_are_owned_by_root(harness: MacHarness) -> None:
    files = harness.mac.files

    files.make_folder("/opt/a/b", mode=0o700, owner="m1:staff")

    assert (files.owner("/opt/a"), files.mode("/opt/a")) == ("root:wheel", 0o755)
    assert (files.owner("/opt/a/b"), files.mode("/opt/a/b")) == ("m1:staff", 0o700)


def test_link_to_a_folder_is_replaced(tmp_path: Path) -> None:
    files = MacHarness(tmp_path).mac.files
    files.link("/opt/link", "/etc")
    files.write("/opt/file", b"new")

    files.rename("/opt/file", "/opt/link")

    assert files.read("/opt/link") == b"new"
    files.link("/opt/link", "/etc")
    files.write("/opt/link", b"newer")
    assert files.read("/opt/link") == b"newer"


def test_link_target_on_the_machine_does_not_matter(tmp_path: Path) -> None:
    files = MacHarness(tmp_path).mac.files
    outside = tmp_path / "outside"
    outside.mkdir()
    files.link("/opt/link", str(outside))

    assert not files.exists("/opt/link")
    files.remove("/opt/link")
    assert outside.exists()
