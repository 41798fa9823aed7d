"""What changes files: at once or not at all, with owner and mode before anybody sees them, and no trace of runs that were cut."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bramley.host.artifacts import Artifact
from bramley.host.commands import Folder, Link, Rename, Stream, Write
from bramley.host.rendering import doing
from tests.unit.host.rendering.shells import OWNER, Shell, available, tree

CONTENT = b"new\0content"


@pytest.fixture(params=available())
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    return Shell.make(tmp_path, request.param)


@pytest.fixture
def mac(tmp_path: Path) -> Path:
    folder = tmp_path / "mac"
    folder.mkdir()
    return folder


def write(
    path: Path, content: bytes = CONTENT, *, mode: int = 0o640, check: tuple[str, ...] = ()
) -> Write:
    return Write(path=str(path), content=content, purpose="p", mode=mode, owner=OWNER, check=check)


def stream(path: Path, content: bytes = CONTENT) -> Stream:
    artifact = Artifact(
        name="a",
        version="1",
        path=Path("/none"),
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    return Stream(artifact=artifact, path=str(path), purpose="p", mode=0o755, owner=OWNER)


def test_a_file_is_written_with_its_mode_and_nothing_is_left_beside_it(
    shell: Shell, mac: Path
) -> None:
    assert shell.do(write(mac / "f")).code == 0
    assert shell.do(write(mac / "f", b"", mode=0o400)).code == 0

    assert tree(mac) == {"f": b""}
    assert (mac / "f").stat().st_mode & 0o7777 == 0o400


def test_the_check_sees_the_new_file_under_its_own_name_and_nobody_else_does(
    shell: Shell, mac: Path
) -> None:
    (mac / "f.conf").write_text("old")
    check = (
        "sh",
        "-c",
        f'ls -ld "${{1%/*}}" >"{mac}/seen"; cat "$1" "{mac}/f.conf" >>"{mac}/seen"; echo "${{1##*/}}" >>"{mac}/seen"',
        "sh",
        "{}",
    )

    assert shell.do(write(mac / "f.conf", check=check)).code == 0

    seen = (mac / "seen").read_bytes()
    assert seen.startswith(b"drwx------")
    assert seen.endswith(b"new\0contentoldf.conf\n")


def test_a_file_that_its_check_refuses_leaves_the_old_one(shell: Shell, mac: Path) -> None:
    (mac / "f").write_text("old")

    result = shell.do(write(mac / "f", check=("sh", "-c", "echo bad line >&2; exit 3")))

    assert (result.code, result.said) == (125, b"bad line\nsh does not accept the new file\n")
    assert tree(mac) == {"f": b"old"}


def test_a_line_that_is_cut_within_the_content_leaves_the_old_file(shell: Shell, mac: Path) -> None:
    (mac / "f").write_text("old")

    result = shell.do(write(mac / "f"), given=b"bmV3", is_cut=True)

    assert result.code == 125
    assert tree(mac) == {"f": b"old"}


def test_what_cut_runs_left_is_removed_by_the_next_and_only_that(shell: Shell, mac: Path) -> None:
    for name in (
        ".bramley-new.aaaaaaaaaaaaaaaa.f",
        ".bramley-new.bbbbbbbbbbbbbbbb.g",
        ".bramley-new.x.f",
    ):
        (mac / name).mkdir()

    assert shell.do(write(mac / "f")).code == 0

    assert set(tree(mac)) == {"f", ".bramley-new.bbbbbbbbbbbbbbbb.g", ".bramley-new.x.f"}


@pytest.mark.parametrize("kind", ["write", "stream", "link"])
def test_a_folder_is_never_replaced_nor_filled_by_accident(
    shell: Shell, mac: Path, kind: str
) -> None:
    (mac / "f").mkdir()
    commands: dict[str, doing.Rendered] = {
        "write": write(mac / "f"),
        "stream": stream(mac / "f"),
        "link": Link(path=str(mac / "f"), target="x", purpose="p"),
    }

    result = shell.do(commands[kind])

    assert result.code == 125
    assert b"is a folder" in result.said
    assert tree(mac) == {"f": "folder"}


def test_a_file_takes_the_place_of_a_link_and_leaves_its_target_alone(
    shell: Shell, mac: Path
) -> None:
    (mac / "folder").mkdir()
    (mac / "f").symlink_to("folder")

    assert shell.do(write(mac / "f")).code == 0

    assert tree(mac) == {"folder": "folder", "f": CONTENT}


def test_a_file_whose_folder_is_missing_is_told_so(shell: Shell, mac: Path) -> None:
    result = shell.do(write(mac / "none" / "f"))

    assert result.code == 125
    assert result.said == f"the folder {mac}/none is not there\n".encode()


def test_a_file_is_streamed_whole(shell: Shell, mac: Path) -> None:
    (mac / "f").write_text("old")
    content = bytes(range(256)) * 4000

    result = shell.do(stream(mac / "f", content), given=content, is_cut=True)

    assert (result.code, result.said) == (0, b"")
    assert tree(mac) == {"f": content}
    assert (mac / "f").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (CONTENT[:-1], b"not all bytes"),
        (CONTENT + b"x", b"not all bytes"),
        (CONTENT[::-1], b"not those that were sent"),
    ],
)
def test_a_stream_that_is_not_what_was_sent_leaves_the_old_file(
    shell: Shell, mac: Path, given: bytes, told: bytes
) -> None:
    (mac / "f").write_text("old")

    result = shell.do(stream(mac / "f"), given=given, is_cut=True)

    assert result.code == 125
    assert told in result.said
    assert tree(mac) == {"f": b"old"}


def test_a_link_to_a_folder_is_replaced_and_not_entered(shell: Shell, mac: Path) -> None:
    for name in ("one", "two"):
        (mac / name).mkdir()
        assert shell.do(Link(path=str(mac / "current"), target=name, purpose="p")).code == 0
        assert tree(mac)["current"] == f"-> {name}"

    assert set(tree(mac)) == {"one", "two", "current"}


def test_a_folder_is_made_with_its_parents_or_given_its_mode(shell: Shell, mac: Path) -> None:
    for mode in (0o700, 0o1777):
        assert (
            shell.do(Folder(path=str(mac / "a" / "b"), purpose="p", mode=mode, owner=OWNER)).code
            == 0
        )
        assert (mac / "a" / "b").stat().st_mode & 0o7777 == mode
    assert (mac / "a").stat().st_mode & 0o7777 == 0o755


def test_a_name_is_taken_from_a_file_and_never_within_a_folder(shell: Shell, mac: Path) -> None:
    (mac / "a").write_text("a")
    (mac / "b").write_text("b")
    (mac / "folder").mkdir()

    assert shell.do(Rename(path=str(mac / "a"), to=str(mac / "b"), purpose="p")).code == 0
    refused = shell.do(Rename(path=str(mac / "b"), to=str(mac / "folder"), purpose="p"))

    assert refused.code == 125
    assert tree(mac) == {"b": b"a", "folder": "folder"}
