"""Files of a simulated Mac: links that stay inside, owners with and without the kernel's help, whole files only."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bramley.sim.macos import faults
from bramley.sim.macos.files import Files
from tests.unit.sim.macos.macs import Bench


@pytest.fixture(params=[True, False], ids=["kernel keeps owners", "state keeps owners"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, can_chown=request.param)


def test_a_bare_mac_has_apples_packet_filter_and_links_at_the_top(tmp_path: Path) -> None:
    files = Bench(tmp_path).mac.files

    assert 'nat-anchor "com.apple/*"' in files.text("/etc/pf.conf")
    assert files.target("/etc") == "private/etc"
    assert files.real("/etc/pf.conf") == "/private/etc/pf.conf"
    assert files.names("/etc/sudoers.d") == []


def test_homes_are_their_users_and_the_rest_is_roots(bench: Bench) -> None:
    files = bench.mac.files

    assert files.owner("/Users/m1") == "m1:staff"
    assert files.owner("/etc/pf.conf") == "root:wheel"


def test_an_owner_goes_with_its_file(bench: Bench) -> None:
    files = bench.mac.files
    files.make_folder("/opt/a")
    files.write("/opt/a/file", b"", owner="m1:staff", mode=0o600)

    files.rename("/opt/a", "/opt/b")

    assert files.owner("/opt/b/file") == "m1:staff"
    assert files.mode("/opt/b/file") == 0o600


def test_a_file_that_is_renamed_to_itself_keeps_its_owner(bench: Bench) -> None:
    files = bench.mac.files
    files.write("/opt/file", b"", owner="m1:staff")

    files.rename("/opt/file", "/opt/file")

    assert files.owner("/opt/file") == "m1:staff"


def linked(bench: Bench) -> Files:
    """Return the files of a Mac on which one folder is reached through a link beside another."""
    files = bench.mac.files
    for folder in ("/opt/a", "/opt/b"):
        files.make_folder(folder)
    files.link("/opt/now", "a")
    return files


def test_a_link_that_is_set_anew_leads_elsewhere_at_once(bench: Bench) -> None:
    files = linked(bench)

    with bench.mac.caching():
        assert files.real("/opt/now/file") == "/opt/a/file"
        files.link("/opt/now", "b")
        assert files.real("/opt/now/file") == "/opt/b/file"
        files.remove("/opt/now")
        assert files.real("/opt/now/file") == "/opt/now/file"


def test_a_link_that_others_set_anew_is_seen_when_the_moment_is_over(bench: Bench) -> None:
    files = linked(bench)
    with bench.mac.caching():
        assert files.real("/opt/now/file") == "/opt/a/file"
    link = files.at("/opt/now", follow=False)
    link.unlink()
    link.symlink_to("b")

    with bench.mac.caching():
        assert files.real("/opt/now/file") == "/opt/b/file"


def test_an_owner_does_not_outlive_its_file(bench: Bench) -> None:
    files = bench.mac.files
    files.write("/opt/file", b"", owner="m1:staff")

    files.remove("/opt/file")
    files.write("/opt/file", b"")

    assert files.owner("/opt/file") == "root:wheel"


def test_a_file_that_takes_anothers_name_keeps_its_own_owner(bench: Bench) -> None:
    files = bench.mac.files
    files.write("/opt/old", b"", owner="m1:staff")
    files.write("/opt/new", b"", owner="root:wheel")

    files.rename("/opt/new", "/opt/old")

    assert files.owner("/opt/old") == "root:wheel"


def test_nobody_can_be_given_a_file_who_does_not_exist(bench: Bench) -> None:
    with pytest.raises(LookupError, match="illegal user name"):
        bench.mac.files.own("/etc/pf.conf", "nobody-here:staff")


def test_a_file_for_nobody_leaves_the_old_one(bench: Bench) -> None:
    bench.mac.files.write("/opt/file", b"old", owner="m1:staff")

    with pytest.raises(LookupError):
        bench.mac.files.write("/opt/file", b"new", owner="nobody-here:staff")

    assert bench.mac.files.read("/opt/file") == b"old"
    assert bench.mac.files.owner("/opt/file") == "m1:staff"


def test_links_are_followed_inside_the_root_only(tmp_path: Path) -> None:
    files = Bench(tmp_path).mac.files
    files.link("/opt/up", "../../../../../../etc")
    files.link("/opt/absolute", "/etc/pf.conf")

    assert files.real("/opt/up/pf.conf") == "/private/etc/pf.conf"
    assert files.read("/opt/absolute") == files.read("/etc/pf.conf")


def test_what_goes_while_a_folder_is_looked_through_is_left_out(tmp_path: Path) -> None:
    files = Bench(tmp_path).mac.files
    files.make_folder("/opt/a")
    for name in ("1", "2", "3"):
        files.write(f"/opt/a/{name}", b"")

    seen = []
    for path, _ in files.facts("/opt/a"):
        seen.append(path)
        files.remove("/opt/a/2")

    assert seen == ["/opt/a/1", "/opt/a/3"]


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    files = Bench(tmp_path).mac.files
    files.link("/opt/a", "/opt/b")
    files.link("/opt/b", "/opt/a")

    with pytest.raises(OSError, match="symbolic links") as error:
        files.read("/opt/a")

    assert error.value.errno == errno.ELOOP


def test_writing_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    files = Bench(tmp_path).mac.files
    files.write("/opt/target", b"old")
    files.link("/opt/link", "target")

    files.write("/opt/link", b"new")

    assert files.read("/opt/target") == b"old"
    assert files.read("/opt/link") == b"new"


def test_a_full_disk_takes_no_file_and_leaves_the_old_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.mac.files.write("/opt/file", b"old")
    faults.set_free_space(bench.mac, 0)

    with pytest.raises(OSError, match="No space left"):
        bench.mac.files.write("/opt/file", b"new")

    assert bench.mac.files.read("/opt/file") == b"old"


def test_a_folder_is_not_replaced_by_a_file_or_a_link(tmp_path: Path) -> None:
    files = Bench(tmp_path).mac.files
    files.write("/tmp/file", b"")

    with pytest.raises(IsADirectoryError):
        files.write("/opt", b"")
    with pytest.raises(IsADirectoryError):
        files.link("/opt", "etc")
    with pytest.raises(IsADirectoryError):
        files.rename("/tmp/file", "/opt")


def test_missing_parents_are_made_as_roots(bench: Bench) -> None:
    files = bench.mac.files

    files.make_folder("/opt/a/b", mode=0o700, owner="m1:staff")

    assert (files.owner("/opt/a"), files.mode("/opt/a")) == ("root:wheel", 0o755)
    assert (files.owner("/opt/a/b"), files.mode("/opt/a/b")) == ("m1:staff", 0o700)


def test_a_link_to_a_folder_is_replaced_and_not_entered(tmp_path: Path) -> None:
    files = Bench(tmp_path).mac.files
    files.link("/opt/link", "/etc")
    files.write("/opt/file", b"new")

    files.rename("/opt/file", "/opt/link")

    assert files.read("/opt/link") == b"new"
    files.link("/opt/link", "/etc")
    files.write("/opt/link", b"newer")
    assert files.read("/opt/link") == b"newer"


def test_what_a_link_names_on_the_machine_itself_does_not_matter(tmp_path: Path) -> None:
    files = Bench(tmp_path).mac.files
    outside = tmp_path / "outside"
    outside.mkdir()
    files.link("/opt/link", str(outside))

    assert not files.exists("/opt/link")
    files.remove("/opt/link")
    assert outside.exists()
