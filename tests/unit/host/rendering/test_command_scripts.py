"""Scripts that change files: atomic, with owner and mode set before the rename, and without leftovers of interrupted runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bramley.host.artifacts import Artifact
from bramley.host.commands import Folder, Link, Rename, Stream, Write
from bramley.host.rendering import command_scripts, script
from tests.unit.host.rendering.shells import OWNER, WITHIN, Shell, available, tree

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


def test_file_is_written_with_its_mode_and_without_leftovers(shell: Shell, mac: Path) -> None:
    assert shell.execute(write(mac / "f")).code == 0
    assert shell.execute(write(mac / "f", b"", mode=0o400)).code == 0

    assert tree(mac) == {"f": b""}
    assert (mac / "f").stat().st_mode & 0o7777 == 0o400


def test_check_runs_on_the_new_file_in_a_private_folder(shell: Shell, mac: Path) -> None:
    (mac / "f.conf").write_text("old")
    check = (
        "sh",
        "-c",
        f'ls -ld "${{1%/*}}" >"{mac}/seen"; cat "$1" "{mac}/f.conf" >>"{mac}/seen"; echo "${{1##*/}}" >>"{mac}/seen"',
        "sh",
        "{}",
    )

    assert shell.execute(write(mac / "f.conf", check=check)).code == 0

    facts = (mac / "seen").read_bytes()
    assert facts.startswith(b"drwx------")
    assert facts.endswith(b"new\0contentoldf.conf\n")


def test_check_that_ends_at_once_does_not_remove_the_new_file(shell: Shell, mac: Path) -> None:
    # The timer of the check is killed when it has just been forked: bash 5 then ran the EXIT trap of its parent in every fourth of them.
    program = """
        new_file "$1" 0123456789abcdef
        : >"$new/$name"
        count=0
        while [ "$count" -lt 200 ]; do
            : &
            wait_with_timeout "$!" 5
            count=$((count + 1))
        done
        install_file
    """
    fragments = map(script.fragment, ("fail", "process_timeout", "install_file"))
    text = script.compose(*fragments, program)

    with shell.running(script.as_user(text, str(mac / "f"))) as process:
        _, stderr = process.communicate(timeout=WITHIN)

    assert (process.returncode, stderr) == (0, b"")
    assert tree(mac) == {"f": b""}


def test_failed_check_keeps_the_old_file(shell: Shell, mac: Path) -> None:
    (mac / "f").write_text("old")

    result = shell.execute(write(mac / "f", check=("sh", "-c", "echo bad line >&2; exit 3")))

    assert (result.code, result.stderr) == (125, b"bad line\nsh does not accept the new file\n")
    assert tree(mac) == {"f": b"old"}


def test_lost_connection_keeps_the_old_file(shell: Shell, mac: Path) -> None:
    (mac / "f").write_text("old")

    result = shell.execute(write(mac / "f"), stdin=b"bmV3", is_closed=True)

    assert result.code == 125
    assert tree(mac) == {"f": b"old"}


def test_leftovers_of_the_same_file_are_removed(shell: Shell, mac: Path) -> None:
    for name in (
        ".bramley-new.aaaaaaaaaaaaaaaa.f",
        ".bramley-new.bbbbbbbbbbbbbbbb.g",
        ".bramley-new.x.f",
    ):
        (mac / name).mkdir()

    assert shell.execute(write(mac / "f")).code == 0

    assert set(tree(mac)) == {"f", ".bramley-new.bbbbbbbbbbbbbbbb.g", ".bramley-new.x.f"}


@pytest.mark.parametrize("kind", ["write", "stream", "link"])
def test_existing_folder_is_never_replaced(shell: Shell, mac: Path, kind: str) -> None:
    (mac / "f").mkdir()
    commands: dict[str, command_scripts.Rendered] = {
        "write": write(mac / "f"),
        "stream": stream(mac / "f"),
        "link": Link(path=str(mac / "f"), target="x", purpose="p"),
    }

    result = shell.execute(commands[kind])

    assert result.code == 125
    assert b"is a folder" in result.stderr
    assert tree(mac) == {"f": "folder"}


def test_write_replaces_a_link_and_not_its_target(shell: Shell, mac: Path) -> None:
    (mac / "folder").mkdir()
    (mac / "f").symlink_to("folder")

    assert shell.execute(write(mac / "f")).code == 0

    assert tree(mac) == {"folder": "folder", "f": CONTENT}


def test_missing_folder_is_reported(shell: Shell, mac: Path) -> None:
    result = shell.execute(write(mac / "none" / "f"))

    assert result.code == 125
    assert result.stderr == f"the folder {mac}/none does not exist\n".encode()


def test_stream_replaces_the_file(shell: Shell, mac: Path) -> None:
    (mac / "f").write_text("old")
    content = bytes(range(256)) * 4000

    result = shell.execute(stream(mac / "f", content), stdin=content, is_closed=True)

    assert (result.code, result.stderr) == (0, b"")
    assert tree(mac) == {"f": content}
    assert (mac / "f").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("received", "problem"),
    [
        (CONTENT[:-1], b"not all bytes"),
        (CONTENT + b"x", b"not all bytes"),
        (CONTENT[::-1], b"differ from those that were sent"),
    ],
)
def test_incomplete_or_corrupt_stream_keeps_the_old_file(
    shell: Shell, mac: Path, received: bytes, problem: bytes
) -> None:
    (mac / "f").write_text("old")

    result = shell.execute(stream(mac / "f"), stdin=received, is_closed=True)

    assert result.code == 125
    assert problem in result.stderr
    assert tree(mac) == {"f": b"old"}


def test_link_to_a_folder_is_replaced(shell: Shell, mac: Path) -> None:
    for name in ("one", "two"):
        (mac / name).mkdir()
        assert shell.execute(Link(path=str(mac / "current"), target=name, purpose="p")).code == 0
        assert tree(mac)["current"] == f"-> {name}"

    assert set(tree(mac)) == {"one", "two", "current"}


def test_folder_is_created_with_its_parents_or_its_mode_is_set(shell: Shell, mac: Path) -> None:
    for mode in (0o700, 0o1777):
        assert (
            shell.execute(
                Folder(path=str(mac / "a" / "b"), purpose="p", mode=mode, owner=OWNER)
            ).code
            == 0
        )
        assert (mac / "a" / "b").stat().st_mode & 0o7777 == mode
    assert (mac / "a").stat().st_mode & 0o7777 == 0o755


def test_rename_replaces_a_file_and_never_moves_into_a_folder(shell: Shell, mac: Path) -> None:
    (mac / "a").write_text("a")
    (mac / "b").write_text("b")
    (mac / "folder").mkdir()

    assert shell.execute(Rename(path=str(mac / "a"), to=str(mac / "b"), purpose="p")).code == 0
    refused = shell.execute(Rename(path=str(mac / "b"), to=str(mac / "folder"), purpose="p"))

    assert refused.code == 125
    assert tree(mac) == {"b": b"a", "folder": "folder"}
